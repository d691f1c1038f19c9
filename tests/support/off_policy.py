"""Closed forms of expected gradients where the episodes are another policy's, with none of the agents' code in them.

As in family.py: one group of each prompt, N = PK episodes, credit [P, C, T] is the expectation of how often a
completion comes up times what its step weighs times its advantage; here it is of the policy μ that sampled.
"""

from __future__ import annotations

import torch
from family import LENGTHS, _collect, _odds, _standardized, _totals, _tuples, ascent, chances, paid, zeros
from tabular import AT_THE_END, MASK, C, P, T, TabularPolicy


def signed_credit(
    sampler: TabularPolicy, size: int, standardized: bool = True, per_token: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the credit of completions with a positive advantage and of those with a negative one, each [P, C, 1].

    Args:
        sampler: μ.
        size: K.
        standardized: whether the group's standard deviation divides.
        per_token: whether T_i divides.
    """
    chosen = _tuples(size)
    parts = [zeros(P, C), zeros(P, C)]
    for p in range(P):
        advantages = _standardized(_totals(AT_THE_END)[p][chosen], standardized)  # [M, K]
        weights = 1 / (P * size * (LENGTHS[chosen].double() if per_token else 1))
        each = _odds(sampler, p, chosen)[:, None] * weights * advantages
        for part, side in zip(parts, (each.clamp(min=0), each.clamp(max=0)), strict=True):
            part[p] = _collect(chosen, side)
    return parts[0][..., None], parts[1][..., None]


def token_ratios(policy: TabularPolicy, sampler: TabularPolicy) -> torch.Tensor:
    """Return π/μ of every step of every completion [P, C, T]."""
    return paid(policy.logits.detach().log_softmax(-1) - sampler.logits.detach().log_softmax(-1)).exp()


def probabilities(policy: TabularPolicy) -> torch.Tensor:
    """Return π(a_t|s_t) of every step of every completion [P, C, T]."""
    return paid(policy.logits.detach().softmax(-1))


def episode_ratios(policy: TabularPolicy, sampler: TabularPolicy) -> torch.Tensor:
    """Return π(y)/μ(y) at every step of every completion [P, C, T]."""
    return (chances(policy) / chances(sampler))[..., None].expand(-1, -1, T)


def weighted_gradient(
    policy: TabularPolicy, good: torch.Tensor, bad: torch.Tensor, weight: torch.Tensor, other: torch.Tensor
) -> torch.Tensor:
    """Return the gradient of Σ (good · weight + bad · other) · log π, of weights that are constants [P, S, V]."""
    return ascent(policy, good * weight + bad * other)


def sapo_gradient(
    policy: TabularPolicy, sampler: TabularPolicy, size: int, positive: float, negative: float
) -> torch.Tensor:
    """Return E Σ_i 1/(N T_i) Σ_t A_i ∇(4/τ σ(τ (ρ - 1))), σ by its definition."""
    ratio = token_ratios(policy, sampler)

    def slope(tau: float) -> torch.Tensor:
        power = (-tau * (ratio - 1)).exp()
        return 4 * power / (1 + power).square() * ratio

    return weighted_gradient(policy, *signed_credit(sampler, size), slope(positive), slope(negative))


def dppo_gradient(policy: TabularPolicy, sampler: TabularPolicy, size: int, most: float, bound: float) -> torch.Tensor:
    """Return E Σ_i 1/(N T_i) Σ_t M min(ρ, bound) A_i ∇log π, M = 0 where the probability moved too far."""
    weight, moved = token_ratios(policy, sampler).clamp(max=bound), probabilities(policy) - probabilities(sampler)
    credit = signed_credit(sampler, size)
    return weighted_gradient(policy, *credit, weight * (moved <= most), weight * (moved >= -most))


def topr_gradient(policy: TabularPolicy, sampler: TabularPolicy, baseline: float) -> torch.Tensor:
    """Return E 1/N Σ_i α_i (R_i - c) Σ_t ∇log π, α the paper's."""
    gains = _totals(AT_THE_END) - baseline  # [P, C]
    kept = torch.where(gains >= 0, 1.0, (chances(policy) / chances(sampler)).clamp(max=1))
    return ascent(policy, (chances(sampler) * kept * gains / P)[..., None].expand(-1, -1, T))


def clip_cov_gradient(policy: TabularPolicy, share: float, low: float, high: float) -> torch.Tensor:
    """Return E Σ_i 1/n Σ_t A_i ∇log π, less the steps of each rollout with the largest covariance; K = 2, ratio 1.

    Args:
        policy: π, which samples.
        share: of the rollout's n steps that are left out, at least one.
        low: only steps with a (log π - mean)(A - mean) above it.
        high: and below it.
    """
    chosen, log_pi = _tuples(2), paid(policy.logits.detach().log_softmax(-1))  # [M, 2], [P, C, T]
    m = len(chosen)
    joint = torch.cartesian_prod(torch.arange(m), torch.arange(m))  # [J, 2]: a group of each prompt
    rows = chosen[joint]  # [J, P, 2], completions
    odds = _odds(policy, 0, chosen)[joint[:, 0]] * _odds(policy, 1, chosen)[joint[:, 1]]
    advantages = torch.stack([_standardized(_totals(AT_THE_END)[p][chosen], True)[joint[:, p]] for p in range(P)], 1)
    there, prompts = MASK[rows], torch.arange(P)[None, :, None].expand(rows.shape)
    n = there.sum((1, 2, 3), keepdim=True)  # [J, 1, 1, 1]
    log_probs, credit = log_pi[prompts, rows], advantages[..., None] * there  # [J, P, 2, T]
    mean_l, mean_a = (table.sum((1, 2, 3), keepdim=True) / n for table in (log_probs, credit))
    values = (log_probs - mean_l) * (advantages[..., None] - mean_a)
    free = there & (credit != 0) & (values > low) & (values < high)
    ordered = values.where(free, -torch.inf).flatten(1).sort(descending=True).values  # [J, 2PT]
    count = torch.minimum((share * n.flatten()).long().clamp(min=1), free.flatten(1).sum(1).clamp(min=1))
    least = ordered.gather(1, count[:, None] - 1)[..., None, None]
    kept = credit * ~(free & (values >= least)) / n * odds[:, None, None, None]
    total = zeros(P * C, T).index_add(0, (prompts * C + rows).flatten(), kept.flatten(0, 2))
    return ascent(policy, total.view(P, C, T))


def mean_fall(policy: TabularPolicy, sampler: TabularPolicy) -> torch.Tensor:
    """Return 1/T Σ_t (log μ - log π) of every completion [P, C, 1]."""
    return -(token_ratios(policy, sampler).log().where(MASK, 0).sum(-1) / LENGTHS)[..., None]
