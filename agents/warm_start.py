"""The supervised warm start: imitation of demonstrations, before reinforcement learning."""

from __future__ import annotations

from collections.abc import Callable

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
    check_count("steps", steps, low=0)
    check_count("batch_size", batch_size)
    check_number("learning_rate", learning_rate, low=0.0, above=True)
    warn_of_half_precision(policy)
    parameters = policy.actor_parameters()
    optimizer = torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=0.0)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=max(steps, 1))
    losses: list[float] = []
    for step in range(steps):
        batch = demonstrations(batch_size)
        log_probs, _ = policy.evaluate_actions(batch, entropy=False)
        loss = -(token_mean(batch.mask) * log_probs).sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm)
        optimizer.step()
        decay.step()
        losses.append(loss.item())
        if on_step is not None and not on_step(step, losses[-1]):
            break
    policy.renew_critic()
    return losses
