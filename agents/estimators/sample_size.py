"""The effective sample size: how many episodes say as much as all do with their importance weights."""

from __future__ import annotations

import torch

from ..devices import widest


def episode_weights(log_probs: torch.Tensor, acting_log_probs: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the importance weight of each episode, Π_t π/μ, without a bound [N].

    Args:
        log_probs: log π [N, T].
        acting_log_probs: log μ, while acting [N, T].
        mask: steps that count, bool [N, T]; masked cells may hold anything.
    """
    log_ratio = (log_probs - acting_log_probs).detach().to(widest(mask.device)).where(mask, 0).sum(1)
    return log_ratio.clamp(-300, 300).exp()  # whose squares are finite and not 0


def effective_share(total: float, squares: float, count: float) -> float:
    """Return which share of the episodes would say as much if all weighed the same: the effective sample size, by N.

        (Σ_i w_i)² / (N Σ_i w_i²)                                                  (Kish 1965; arXiv:2602.17616)

    Args:
        total: Σ_i w_i.
        squares: Σ_i w_i².
        count: N.

    Returns:
        1 if all weigh the same, 1/N if one outweighs all others; 1 without episodes.
    """
    return min(total**2 / (count * squares), 1.0) if count else 1.0
