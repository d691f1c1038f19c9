"""The clipped ratio of the policies after and before an update, and its variants; [N, T] each."""

from __future__ import annotations

import math

import torch

from .losses import policy_gradient, squared_error


def clipped_ratio(
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor,
    advantages: torch.Tensor,
    low: float,
    high: float,
    most: float | None = None,
) -> torch.Tensor:
    """Return the clipped surrogate, a pessimistic bound: moving the ratio further out of its range earns nothing.

        min(ρ_t A_t, clip(ρ_t, 1 - low, 1 + high) A_t)        ρ_t = π(a_t | s_t) / π_old(a_t | s_t)

    (Schulman et al. 2017, eq. 7; with low ≠ high, Yu et al. 2025, eq. 10). At ρ = 1 its gradient is A_t ∇log π. With a
    bound δ, the first ρ_t is min(ρ_t, δ), so that a bad action that became likely loses no more than δ A_t
    (arXiv:1912.09729, arXiv:2505.07291).

    Args:
        log_probs: differentiable [N, T].
        old_log_probs: of the policy before the update, constants [N, T].
        advantages: constants [N, T].
        low: the ratio may fall to 1 - low, 0 to 1.
        high: the ratio may rise to 1 + high, 0 to 1.
        most: δ, above 1 + high; None for no bound.
    """
    # Clipped before the exponential: the gradient of a clipped ratio beyond floats would be 0 times infinity.
    return clipped_log_ratio(log_probs, old_log_probs, advantages, low, high, most).exp() * advantages.detach()


def is_clipped(
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor,
    advantages: torch.Tensor,
    low: float,
    high: float,
    most: float | None = None,
) -> torch.Tensor:
    """Return where the clipped surrogate has no gradient, bool [N, T]."""
    used = clipped_log_ratio(log_probs, old_log_probs, advantages, low, high, most)
    return (used != log_probs - old_log_probs) & (advantages != 0)


def clipped_log_ratio(
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor,
    advantages: torch.Tensor,
    low: float,
    high: float,
    most: float | None = None,
) -> torch.Tensor:
    """Return the logarithm of the ratio by which `clipped_ratio` multiplies A_t; see there for the arguments.

    min(log ρ_t, log(1 + high)) where A_t ≥ 0, else max(log ρ_t, log(1 - low))                 (arXiv:2507.20673)
    """
    log_ratio = log_probs - old_log_probs.detach()
    bounded = log_ratio if most is None else log_ratio.clamp(max=math.log(most))
    return log_ratio.clamp(max=math.log1p(high)).where(advantages >= 0, bounded.clamp(min=math.log1p(-low)))


def weighted_log_prob(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, most: float
) -> torch.Tensor:
    """Return log π with the truncated ratio as a constant weight, so that every step has a gradient.

        sg(min(ρ_t, most)) A_t log π(a_t | s_t)                                              (arXiv:2506.13585, eq. 4)

    Args:
        log_probs: differentiable [N, T].
        old_log_probs: of the policy before the update, constants [N, T].
        advantages: constants [N, T].
        most: the largest weight.
    """
    weights = (log_probs.detach() - old_log_probs.detach()).exp().clamp(max=most)
    return weights * policy_gradient(log_probs, advantages)


def per_sequence(log_probs: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the mean log-probability of each episode's steps, at each of its steps [N, T].

    The ratio of two of these is the sequence's, to the power 1/T_i:  (π(y_i) / π_old(y_i))^(1/T_i).

    Args:
        log_probs: [N, T].
        mask: steps that count, bool [N, T].
    """
    means = log_probs.where(mask, 0).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)  # [N, 1]
    return means.expand(log_probs.shape)


def clipped_squared_error(
    values: torch.Tensor, old_values: torch.Tensor, targets: torch.Tensor, clip: float
) -> torch.Tensor:
    """Return the larger squared error of the value and of the value kept within ±clip of the old one [N, T].

    The critic's counterpart of the clipped ratio (PPO's first implementation, OpenAI baselines; not in the paper).
    """
    near = old_values.detach() + (values - old_values.detach()).clamp(-clip, clip)
    return torch.maximum(squared_error(values, targets), squared_error(near, targets))
