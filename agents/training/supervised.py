"""The supervised warm start: imitation of demonstrations, before reinforcement learning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rlenv._checks import check_count, check_number
from rlenv._settings import declared_by

from .. import processes
from ..estimators.aggregation import token_mean
from ..fsdp import gathered
from ..policies import Policy
from ..rollout import Batch, Rollout
from .extras import own_passes
from .optimizer import PolicyOptimizer, warn_of_float16
from .settings import AgentSettings


def warm_start(
    policy: Policy,
    demonstrations: Rollout | Callable[[int], Rollout],
    steps: int,
    batch_size: int = 128,
    learning_rate: float = 2e-3,
    max_grad_norm: float = 1.0,
    on_step: Callable[[int, float], bool] | None = None,
    micro_batch_size: int | None = None,
    micro_batch_tokens: int | None = None,
    seed: int = 0,
) -> list[float]:
    """Maximise the likelihood of demonstrated actions; prompts are not trained on.

        L = - Σ_i Σ_t log π(a_t | s_t) / Σ_i T_i

    Args:
        policy: trained in place; a separate critic then starts from the trained weights.
        demonstrations: demonstrated episodes, which batches are drawn from, see `Rollout.of_demonstrations`; or a
            function that returns a rollout with this many.
        steps: optimizer steps; 0 does nothing.
        batch_size: episodes per step.
        learning_rate: of Adam; it falls linearly to a tenth.
        max_grad_norm: gradients are clipped to this norm.
        on_step: called after every step with its number and loss; returning False ends the training.
        micro_batch_size: episodes per pass; None for all. Does not change the gradient.
        micro_batch_tokens: the same in tokens, prompts included.
        seed: of the batches that are drawn.

    Returns:
        The loss of every step, in nats per token.

    Raises:
        ValueError: for hyper-parameters out of range.
    """
    sizes = (batch_size, learning_rate, max_grad_norm, micro_batch_size, micro_batch_tokens)
    return WarmStart(policy, demonstrations, steps, *sizes, seed=seed).run(on_step)


@torch.no_grad()
def demonstration_loss(
    policy: Policy, episodes: Rollout, batch_size: int = 128, micro_batch_tokens: int | None = None
) -> float:
    """Return the loss of `warm_start` on demonstrations, in nats per token; the policy is not trained."""
    total = 0.0
    own = episodes.select(processes.own_rows(policy.costs(episodes)))
    costs = None if micro_batch_tokens is None else policy.costs(own)
    with gathered(policy):
        for batch in own.split(batch_size, costs, micro_batch_tokens):
            log_probs = policy.evaluate(batch)["log_probs"]
            total -= float(log_probs.where(batch.mask, 0).sum())
    return sum(processes.gather(total)) / max(int(episodes.mask.sum()), 1)


class WarmStart:
    """The loop of `warm_start`, which can be saved and continued; the other arguments are explained there.

    Args:
        in_passes: whether every demonstration is seen once before any of them again, in a new order each time; the last
            batch of a pass may be smaller.

    Attributes:
        losses: of the steps so far, in nats per token.
    """

    def __init__(
        self,
        policy: Policy,
        demonstrations: Rollout | Callable[[int], Rollout],
        steps: int,
        batch_size: int = 128,
        learning_rate: float = 2e-3,
        max_grad_norm: float = 1.0,
        micro_batch_size: int | None = None,
        micro_batch_tokens: int | None = None,
        seed: int = 0,
        in_passes: bool = False,
    ) -> None:
        self.policy, self.demonstrations, self.in_passes = policy, demonstrations, in_passes
        self.generator, self.order = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.long)
        self.steps = check_count("steps", steps, low=0)
        self.batch_size = check_count("batch_size", batch_size)
        self.learning_rate = check_number("learning_rate", learning_rate, low=0.0, above=True)
        settings = declared_by(AgentSettings)
        self.micro_batch_size = settings["micro_batch_size"].check(micro_batch_size)
        self.micro_batch_tokens = settings["micro_batch_tokens"].check(micro_batch_tokens)
        warn_of_float16(policy)
        self.max_grad_norm, self.optimizer = max_grad_norm, PolicyOptimizer(policy)
        self.losses: list[float] = []

    def run(self, on_step: Callable[[int, float], bool] | None = None) -> list[float]:
        """Take the steps that are left; return all losses."""
        for step in range(len(self.losses), self.steps):
            self.optimizer.zero_grad()
            self.losses.append(self._backward(self._batch()))
            rate = self.learning_rate * (0.1 + 0.9 * (1.0 - step / self.steps))
            self.optimizer.step(rate, self.max_grad_norm)
            if processes.any_of(on_step is not None and not on_step(step, self.losses[-1])):
                break
        critic: Any = getattr(self.policy, "critic", None)
        if hasattr(critic, "renew"):
            critic.renew(self.policy)
        return self.losses

    def _batch(self) -> Rollout:
        shown = self.demonstrations
        if not isinstance(shown, Rollout):
            return shown(self.batch_size)
        if not self.in_passes:
            return shown.select(torch.randint(len(shown), (self.batch_size,), generator=self.generator))
        if not len(self.order):
            self.order = torch.randperm(len(shown), generator=self.generator)
        batch, self.order = self.order[: self.batch_size], self.order[self.batch_size :]
        return shown.select(batch)

    def _backward(self, shown: Rollout) -> float:
        """Make the gradient of one step, in micro-batches; return its loss."""
        weights = token_mean(shown.mask)  # before any split
        batch = Batch.of(shown, advantages=shown.mask.to(weights), weights=weights)
        total = 0.0
        for rows, counts in own_passes(self, batch):
            log_probs = self.policy.evaluate(rows)["log_probs"]
            loss = -(rows.weights * log_probs).sum() * counts
            loss.backward()
            self.optimizer.weights.add_gradients()
            total += loss.item()
        processes.sum_gradients(self.optimizer.weights.masters)
        return sum(processes.gather(total))

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint besides the policy."""
        drawing = {"generator": self.generator.get_state(), "order": self.order}
        return {"optimizer": self.optimizer.state_dict(), "losses": self.losses, **drawing}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from `state_dict`."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.losses, self.order = list(state["losses"]), state["order"]
        self.generator.set_state(state["generator"])
