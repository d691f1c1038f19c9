"""Surrogates and masks that limit how far a step moves the policy, other than the clipped ratio; [N, T] each."""

from __future__ import annotations

import math

import torch


def ratio(log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    """Return ρ_t A_t, the surrogate without any limit; its gradient at ρ = 1 is A_t ∇log π.

    Args:
        log_probs: differentiable [N, T].
        old_log_probs: of the policy before the update, constants [N, T].
        advantages: constants [N, T].
    """
    return (log_probs - old_log_probs.detach()).exp() * advantages.detach()


def soft_gate(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, positive: float, negative: float
) -> torch.Tensor:
    """Return a smooth counterpart of the clipped ratio, whose gradient fades on both sides of ρ = 1.

        4/τ σ(τ (ρ_t - 1)) A_t        τ = positive where A_t > 0, else negative                  (arXiv:2511.20347)

    Its gradient is 4 σ (1 - σ) ρ_t A_t ∇log π: at ρ = 1 that of the policy gradient.

    Args:
        log_probs: differentiable [N, T].
        old_log_probs: of the policy before the update, constants [N, T].
        advantages: constants [N, T].
        positive: τ of good actions, above 0; the larger, the sooner the gradient fades.
        negative: τ of bad actions, above 0.
    """
    gate, temperature = _gate(log_probs, old_log_probs, advantages, positive, negative)
    return 4 / temperature * gate * advantages.detach()


def is_closing(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, positive: float, negative: float
) -> torch.Tensor:
    """Return where the gate of `soft_gate` is less than half open, 4 σ (1 - σ) < 1/2, bool [N, T]."""
    gate, _ = _gate(log_probs, old_log_probs, advantages, positive, negative)
    return 4 * gate * (1 - gate) < 0.5


def _gate(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, positive: float, negative: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return σ(τ (ρ - 1)) and τ, both [N, T]."""
    moved = _finite(log_probs - old_log_probs.detach()).expm1()  # ρ - 1
    temperature = torch.full_like(advantages, negative).masked_fill(advantages > 0, positive)
    return torch.sigmoid(temperature * moved), temperature


def _finite(log_ratio: torch.Tensor) -> torch.Tensor:
    """Return logarithms of finite ratios, the largest in place of larger ones: 0 times infinity is NaN."""
    return log_ratio.clamp(max=math.floor(math.log(torch.finfo(log_ratio.dtype).max)))


def moved_too_far(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, most: float
) -> torch.Tensor:
    """Return where the probability of an action has moved by more than a bound to where its advantage points.

        sign(A_t) (π(a_t|s_t) - π_old(a_t|s_t)) > δ        (arXiv:2602.04879, binary total variation)

    Args:
        log_probs: [N, T].
        old_log_probs: of the policy before the update [N, T].
        advantages: [N, T].
        most: δ.

    Returns:
        bool [N, T].
    """
    return advantages.sign() * (log_probs.exp() - old_log_probs.exp()) > most


def taper(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Return the ratio of each episode as a constant weight, at most 1, and 1 for good episodes.

        1 where A_i ≥ 0, else min(1, Π_t π(a_t|s_t)/μ(a_t|s_t))                                       (arXiv:2503.14286)

    Args:
        log_probs: log π [N, T].
        old_log_probs: log μ, of the policy before the update [N, T].
        advantages: of each step's episode [N, T].
        mask: steps that count, bool [N, T].
    """
    log_ratio = (log_probs - old_log_probs).detach().where(mask, 0).sum(1, keepdim=True)  # [N, 1]
    return log_ratio.clamp(max=0).exp().where(advantages < 0, 1)


def gamma_kernel(
    log_ratio: torch.Tensor, advantages: torch.Tensor, good: tuple[float, float], bad: tuple[float, float]
) -> torch.Tensor:
    """Return a weight that is 1 where the ratio W is 1, and falls to 0 as it goes to 0 or grows, in closed form.

        W^k exp(λ (1 - W))                                                                           (arXiv:2602.10693)

    Args:
        log_ratio: log W of each episode, constants [N, 1].
        advantages: of each step's episode [N, T].
        good: k and λ of episodes with an advantage of at least 0.
        bad: of the others.
    """
    excess = _finite(log_ratio).expm1()  # W - 1
    for_good, for_bad = ((k * log_ratio - decay * excess).exp() for k, decay in (good, bad))
    return for_bad.where(advantages < 0, for_good)


def delight(log_probs: torch.Tensor, advantages: torch.Tensor, width: float) -> torch.Tensor:
    """Return a gate that opens to rare successes and closes to rare failures, constants in (0, 1).

        σ(A_t (-log π(a_t|s_t)) / η)                                                                  (arXiv:2603.14608)

    Args:
        log_probs: [N, T].
        advantages: [N, T].
        width: η, above 0.
    """
    return torch.sigmoid(-(advantages * log_probs).detach() / width)


def covariance(log_probs: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return each step's part of the covariance of log π and A, which is how much it lowers the entropy.

        (log π_t - mean(log π)) (A_t - mean(A)), means over all steps that count        (arXiv:2505.22617)

    Args:
        log_probs: [N, T]; masked cells are ignored.
        advantages: [N, T]; masked cells are ignored.
        mask: steps that count, bool [N, T].

    Returns:
        [N, T]; masked cells may hold anything.
    """
    count = mask.sum().clamp(min=1)
    return (log_probs - log_probs.where(mask, 0).sum() / count) * (advantages - advantages.where(mask, 0).sum() / count)


def largest(values: torch.Tensor, mask: torch.Tensor, count: int) -> torch.Tensor:
    """Return the steps with the largest values, and all that are equal to the least of them, bool [N, T].

    Args:
        values: [N, T].
        mask: steps to choose from, bool [N, T].
        count: how many, at least 1; fewer if there are not so many.
    """
    found = values[mask]
    if not len(found):
        return torch.zeros_like(mask)
    return mask & (values >= found.topk(min(count, len(found))).values[-1])
