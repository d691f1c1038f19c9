"""What a training run logs besides the learner's metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from stable_baselines3.common.logger import HParam

from agents import Agent
from agents.estimators.kl import k1
from agents.training.metrics import is_logged

from .defaults import agent_settings
from .run_log import BetweenRollouts

OF_THE_RUN = ("env_id", "model", "verifier", "problems", "timesteps", "episodes", "sft_steps", "lora_rank")
OF_EVERY_AGENT = ("seed", "learning_rate", "group_size", "episodes_per_update", "gamma", "kl_coef", "ent_coef")
OUTCOMES = ("mean_reward", "success_rate", "mean_ep_length")


class KLFromStart(BetweenRollouts):
    """Logs the KL to the policy that training started from, as `rollout/kl_start`.

        KL(π ‖ π_0) ≈ 1/Σ_i T_i Σ_i Σ_t (log π(a_t | s_t) - log π_0(a_t | s_t)),    a_t ~ π

    The estimator k1 (Schulman 2020, "Approximating KL divergence") on the episodes just collected, in nats per step.
    Costs one forward pass of a frozen copy, the reference of the KL anchor, which checkpoints keep.

    Args:
        every: updates between two estimates; use the log's interval.
    """

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every = every

    def _on_training_start(self) -> None:
        self.model.anchor.freeze_reference(self.model.policy, always=True)
        self.start = self.model.anchor.reference

    @torch.no_grad()
    def _on_rollout_end(self) -> None:
        if not is_logged(self.every, self.model.num_updates + 1):
            return
        rollout = self.locals["rollout"]
        total = 0.0
        for rows in self.model.updater.micro_batches(rollout):
            start_log_probs = self.start.evaluate(rows)["log_probs"]
            total += float(rows.total(k1(rows.log_probs, start_log_probs)))
        self.logger.record("rollout/kl_start", total / max(int(rollout.learnable.sum()), 1))


def record_evaluation(agent: Any, figures: dict[str, Any]) -> dict[str, float]:
    """Record the figures of an evaluation with the agent's logger, and return them as recorded."""
    outcome = {f"eval/{key}": figures[key] for key in OUTCOMES if figures[key] is not None}
    for key, figure in outcome.items():
        agent.logger.record(key, figure)
    return outcome


def record_outcome(agent: Any, given: Mapping[str, Any], figures: dict[str, Any]) -> None:
    """Log the last evaluation with the settings of the run, for TensorBoard's HParams.

    Args:
        agent: its logger is written to.
        given: the options of the command.
        figures: of the evaluation.
    """
    outcome = record_evaluation(agent, figures)
    hparams = HParam(settings_of(agent, given), outcome)
    agent.logger.record("hparams", hparams, exclude=("stdout", "log", "json", "csv"))


def settings_of(agent: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides the result of a run: numbers and short texts, by name."""
    shared = agent_settings(Agent)
    own = {name: value for name, value in agent.settings.items() if name not in shared}
    every = {name: agent.settings[name] for name in OF_EVERY_AGENT}
    found = {"agent": given["agent"]} | {name: given.get(name) for name in OF_THE_RUN} | every | own
    return {name: value for name, value in found.items() if isinstance(value, (bool, int, float, str))}
