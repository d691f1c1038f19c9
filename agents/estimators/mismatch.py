"""Weights of steps that another policy sampled than the one that is trained; they are constants.

The policy that acts and the policy that trains are the same weights, but a cache, 16-bit arithmetic or quantized
weights give other probabilities. With μ the one that acted and π the one that trains, before the update:

| mode | weight of a step | expected gradient of Σ_t weight · A log π |
|---|---|---|
| token-truncate | min(π/μ, high), of its action | without a bound, right for the action, not for the other steps |
| token-mask | π/μ, or 0 where it is outside [low, high] | the same |
| sequence-truncate | min(Π_t π/μ, high), of the whole episode | without a bound, exact; varies more with length |
| sequence-mask | Π_t π/μ, or 0 where it is outside [low, high] | the same |

Where both agree, every weight is 1. A weight is at least `low` when truncated, too. Steps that share one ratio (GSPO)
share the mean of their weights.
"""

from __future__ import annotations

import math

import torch

MODES = ("token-truncate", "token-mask", "sequence-truncate", "sequence-mask")


def importance_weights(
    log_probs: torch.Tensor,
    acting_log_probs: torch.Tensor,
    mask: torch.Tensor,
    mode: str,
    low: float = 0.0,
    high: float | None = None,
) -> torch.Tensor:
    """Return the truncated or masked importance weight of each step, a constant.

        w_t = min(max(ρ, low), high)   or   ρ·1[low ≤ ρ ≤ high]        ρ = π/μ of the step, or of the whole episode

    Truncation: Ionides 2008; by token, Yao et al. 2025 ("FlashRL"). Masks: arXiv:2510.18855 ("IcePop"). The names of
    the modes are TRL's.

    Args:
        log_probs: log π of a training pass, before the update [N, T].
        acting_log_probs: log μ, while acting [N, T].
        mask: steps that count, bool [N, T]; masked cells may hold anything.
        mode: one of `MODES`.
        low: of the weight, at least 0.
        high: of the weight, above 0; None for no bound.

    Returns:
        [N, T]; masked cells may hold anything.
    """
    log_ratio = (log_probs - acting_log_probs).detach().where(mask, 0)
    if mode.startswith("sequence"):
        log_ratio = log_ratio.sum(1, keepdim=True).expand(log_ratio.shape)
    least, most = math.log(low) if low else -math.inf, math.inf if high is None else math.log(high)
    bounded = log_ratio.clamp(least, most)
    return bounded.exp() if mode.endswith("truncate") else log_ratio.exp().where(bounded == log_ratio, 0)


def off_policy_mask(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor, most: float
) -> torch.Tensor:
    """Return which steps stay in the loss, bool [N, T]: all but steps with A < 0 of episodes that became unlikely.

        M_t = 0 where A_t < 0 and 1/T_i Σ_t (log π_old - log π) > δ, else 1            (DeepSeek-V3.2, arXiv:2512.02556)

    An episode whose steps share one advantage stays or leaves as a whole.

    Args:
        log_probs: log π [N, T].
        old_log_probs: of the policy that sampled [N, T].
        advantages: [N, T].
        mask: steps that count, bool [N, T]; masked cells may hold anything.
        most: δ.
    """
    fallen = (old_log_probs - log_probs).detach().where(mask, 0).sum(1, keepdim=True)  # [N, 1]
    return (advantages >= 0) | (fallen <= most * mask.sum(1, keepdim=True))
