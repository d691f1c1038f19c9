"""The supervised warm start: imitation of demonstrations, before reinforcement learning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .checks import check_count, check_number
from .estimators.aggregation import token_mean
from .optimizer import warn_of_half_precision
from .policies import Policy
from .rollout import Rollout


def warm_start(
    policy: Policy,
    demonstrations: Callable[[int], Rollout],
    steps: int,
    batch_size: int = 128,
    learning_rate: float = 2e-3,
    max_grad_norm: float = 1.0,
    on_step: Callable[[int, float], bool] | None = None,
) -> list[float]:
    """Maximise the likelihood of demonstrated actions; prompts are not trained on.

        L = - Σ_i Σ_t log π(a_t | s_t) / Σ_i T_i

    Args:
        policy: trained in place; a separate critic then starts from what was learned.
        demonstrations: returns a rollout with this many demonstrated episodes.
        steps: optimizer steps; 0 does nothing.
        batch_size: episodes per step.
        learning_rate: of AdamW without weight decay; it falls linearly to a tenth.
        max_grad_norm: gradients are clipped to this norm.
        on_step: called after every step with its number and loss; returning False ends the training.

    Returns:
        The loss of every step, in nats per token.

    Raises:
        ValueError: for hyper-parameters out of range.
    """
    return WarmStart(policy, demonstrations, steps, batch_size, learning_rate, max_grad_norm).run(on_step)


class WarmStart:
    """The loop of `warm_start`, which can be saved and continued; the arguments are explained there.

    Attributes:
        losses: of the steps so far, in nats per token.
    """

    def __init__(
        self,
        policy: Policy,
        demonstrations: Callable[[int], Rollout],
        steps: int,
        batch_size: int = 128,
        learning_rate: float = 2e-3,
        max_grad_norm: float = 1.0,
    ) -> None:
        self.policy, self.demonstrations, self.max_grad_norm = policy, demonstrations, max_grad_norm
        self.steps = check_count("steps", steps, low=0)
        self.batch_size = check_count("batch_size", batch_size)
        check_number("learning_rate", learning_rate, low=0.0, above=True)
        warn_of_half_precision(policy, stacklevel=4)
        self.parameters = policy.actor_parameters()
        self.optimizer = torch.optim.AdamW(self.parameters, lr=learning_rate, weight_decay=0.0)
        self.decay = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.1, total_iters=max(steps, 1))
        self.losses: list[float] = []

    def run(self, on_step: Callable[[int, float], bool] | None = None) -> list[float]:
        """Take the steps that are left; return all losses."""
        for step in range(len(self.losses), self.steps):
            batch = self.demonstrations(self.batch_size)
            log_probs, _ = self.policy.evaluate_actions(batch, entropy=False)
            loss = -(token_mean(batch.mask) * log_probs).sum()
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.parameters, self.max_grad_norm)
            self.optimizer.step()
            self.decay.step()
            self.losses.append(loss.item())
            if on_step is not None and not on_step(step, self.losses[-1]):
                break
        self.policy.renew_critic()
        return self.losses

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps besides the policy."""
        return {"optimizer": self.optimizer.state_dict(), "decay": self.decay.state_dict(), "losses": self.losses}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.decay.load_state_dict(state["decay"])
        self.losses = list(state["losses"])
