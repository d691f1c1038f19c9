"""Closed forms of what the descendants of REINFORCE do on average, with none of the agents' code in them.

An expected gradient is that of Σ credit · log π(a_t|s_t) over the steps of all completions, where `credit` [P, C, T]
is the expectation of how often a completion comes up times what its step then weighs times its advantage. A group is
an ordered tuple of K completions, M = C^K of them; all members of a rollout are drawn independently.

Where nothing else is said: one group of each prompt, N = PK episodes, and the ratio is 1, so clipping does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from tabular import ACTIONS, AT_THE_END, MASK, STATES, C, P, T, TabularPolicy, completion_log_probs

LENGTHS = MASK.sum(1)  # [C]
zeros = partial(torch.zeros, dtype=torch.float64)


def chances(policy: TabularPolicy) -> torch.Tensor:
    """Return π(y | prompt) [P, C], constants."""
    return completion_log_probs(policy.logits.detach().log_softmax(-1)).exp()


def paid(rewards: torch.Tensor) -> torch.Tensor:
    """Return the reward of every step of every completion [P, C, T] from a table [P, S, V]."""
    return rewards[:, STATES, ACTIONS].where(MASK, 0)


def ascent(policy: TabularPolicy, credit: torch.Tensor) -> torch.Tensor:
    """Return the gradient of Σ credit · log π [P, S, V]."""
    log_pi = policy.logits.log_softmax(-1)[:, STATES, ACTIONS].where(MASK, 0)  # [P, C, T]
    return torch.autograd.grad((credit * log_pi).sum(), policy.logits)[0]


# Advantages that look at the group alone, weights that look at the episode alone.


def group_gradient(
    policy: TabularPolicy,
    size: int,
    standardized: bool = True,
    per_token: bool = True,
    rewards: torch.Tensor = AT_THE_END,
) -> torch.Tensor:
    """Return E Σ_i 1/(N T_i) Σ_t (R_i - mean) / (std + 1e-4) ∇log π: GRPO.

    Args:
        policy: of the tiny world.
        size: K.
        standardized: whether the standard deviation, the sample's, divides.
        per_token: whether T_i divides.
        rewards: [P, S, V].
    """
    chosen = _tuples(size)  # [M, K]
    credit = zeros(P, C)
    for p in range(P):
        advantages = _standardized(_totals(rewards)[p][chosen], standardized)  # [M, K]
        weights = 1 / (P * size * (LENGTHS[chosen].double() if per_token else 1))
        credit[p] = _collect(chosen, _odds(policy, p, chosen)[:, None] * weights * advantages)
    return ascent(policy, credit[..., None].expand(-1, -1, T))


def own_part_gradient(policy: TabularPolicy, size: int, by_step: bool) -> torch.Tensor:
    """Return E Σ_i 1/N Σ_t (R_i - b_{i,t}) ∇log π, with b a weighted mean of the group in which i itself takes part.

        b = Σ_j l_j R_j / Σ_j l_j (arXiv:2505.23585), or by step b_t = Σ_j W_{j,t} R_j / Σ_j W_{j,t} (arXiv:2602.07078)
        W_{j,t} = Σ_{s≤t} (1 - 2 π(a_s) + Σ_v π(v)²), where an ended episode keeps its last

    Args:
        policy: of the tiny world.
        size: K.
        by_step: which of the two.
    """
    chosen, pi = _tuples(size), policy.logits.detach().softmax(-1)
    norms = (1 - 2 * pi[:, STATES, ACTIONS] + pi.square().sum(-1)[:, STATES]).where(MASK, 0)  # [P, C, T]
    weights = norms.cumsum(-1) if by_step else LENGTHS[:, None].double().expand(P, C, T)
    credit = zeros(P, C, T)
    for p in range(P):
        gains, weight = _totals(AT_THE_END)[p][chosen][..., None], weights[p][chosen]  # [M, K, 1], [M, K, T]
        advantages = gains - (weight * gains).sum(1, keepdim=True) / weight.sum(1, keepdim=True)
        credit[p] = _collect(chosen, _odds(policy, p, chosen)[:, None, None] * advantages / (P * size))
    return ascent(policy, credit)


def k3_gradient(policy: TabularPolicy, reference: TabularPolicy) -> torch.Tensor:
    """Return -E Σ_i 1/(N T_i) Σ_t ∇k3, with ∇k3 = (1 - ref/π) ∇log π: GRPO's anchor for β = 1."""
    log_ratio = reference.logits.detach().log_softmax(-1) - policy.logits.detach().log_softmax(-1)
    slope = 1 - paid(log_ratio).exp()  # [P, C, T]
    return ascent(policy, -slope * (chances(policy) / (P * LENGTHS))[..., None])


def sequence_ratio_gradient(
    policy: TabularPolicy, sampler: TabularPolicy, size: int, low: float, high: float
) -> torch.Tensor:
    """Return E Σ_i 1/N s_i A_i 1/T_i Σ_t ∇log π over the i that are not clipped, s_i = (π(y_i)/μ(y_i))^(1/T_i): GSPO.

    Args:
        policy: π, which is trained.
        sampler: μ, which the episodes are from.
        size: K.
        low: with A < 0, an episode has no gradient where s < 1 - low.
        high: with A > 0, where s > 1 + high.
    """
    chosen = _tuples(size)
    ratios = (chances(policy) / chances(sampler)) ** (1 / LENGTHS.double())  # [P, C]
    credit = zeros(P, C)
    for p in range(P):
        advantages, ratio = _standardized(_totals(AT_THE_END)[p][chosen], True), ratios[p][chosen]  # [M, K]
        free = ~(((advantages > 0) & (ratio > 1 + high)) | ((advantages < 0) & (ratio < 1 - low)))
        weights = free * ratio / (P * size * LENGTHS[chosen].double())
        credit[p] = _collect(chosen, _odds(sampler, p, chosen)[:, None] * weights * advantages)
    return ascent(policy, credit[..., None].expand(-1, -1, T))


# The standard deviation, or the number of tokens, of the rollout.


def rollout_gradient(
    policy: TabularPolicy,
    size: int,
    batch_std: bool,
    token_mean: bool,
    sampler: TabularPolicy | None = None,
    most: float = float("inf"),
) -> torch.Tensor:
    """Return E Σ_i w_i Σ_t min(ρ_{i,t}, most) (R_i - mean) / (std + 1e-4) ∇log π.

    Args:
        policy: π, which is trained.
        size: K.
        batch_std: whether the standard deviation is that of all rewards of the rollout, instead of the group's.
        token_mean: whether w is 1 over the number of all tokens of the rollout, instead of 1/(N T_i).
        sampler: μ, which the episodes are from, ρ = π/μ; None for π.
        most: the largest weight.
    """
    sampler = sampler or policy
    chosen, n = _tuples(size), P * size
    lengths = LENGTHS[chosen].double()  # [M, K]
    gains = [_totals(AT_THE_END)[p][chosen] for p in range(P)]  # of [M, K]
    odds = [_odds(sampler, p, chosen) for p in range(P)]  # of [M]
    sums = [torch.stack([lengths.sum(1), gain.sum(1), gain.square().sum(1)], 1) for gain in gains]  # of [M, 3]
    credit = zeros(P, C)
    for p in range(P):
        others, which = sums[1 - p].unique(dim=0, return_inverse=True)  # [U, 3]
        other_odds = zeros(len(others)).index_add(0, which, odds[1 - p])
        tokens, total, squares = (sums[p][:, None] + others).unbind(-1)  # [M, U]
        deviation = ((squares - total.square() / n).clamp(min=0) / (n - 1)).sqrt()
        if not batch_std:
            deviation = gains[p].std(1, correction=1, keepdim=True)  # [M, 1]
        share = (other_odds / (deviation + 1e-4) / (tokens if token_mean else n)).sum(1, keepdim=True)  # [M, 1]
        weights = share / (1 if token_mean else lengths)
        credit[p] = _collect(chosen, odds[p][:, None] * weights * _standardized(gains[p], False))
    log_ratio = paid(policy.logits.detach().log_softmax(-1) - sampler.logits.detach().log_softmax(-1))  # [P, C, T]
    return ascent(policy, credit[..., None] * log_ratio.exp().clamp(max=most))


# A mean over the tokens of the groups kept, and whitening over the rollout.


def dapo_gradient(policy: TabularPolicy, size: int, given_informative: bool = False) -> torch.Tensor:
    """Return E Σ_i 1/n Σ_t (R_i - mean) / (std + 1e-4) ∇log π, n the tokens of the groups with unequal rewards.

    A rollout without such a group has a gradient of zero, and its share of the expectation is zero.

    Args:
        policy: of the tiny world.
        size: K.
        given_informative: return the expectation over rollouts with at least one such group instead.
    """
    chosen = _tuples(size)
    gains = [_totals(AT_THE_END)[p][chosen] for p in range(P)]  # of [M, K]
    odds = [_odds(policy, p, chosen) for p in range(P)]  # of [M]
    kept = [gain.max(1).values > gain.min(1).values for gain in gains]  # of [M]
    tokens = [LENGTHS[chosen].sum(1) * keep for keep in kept]
    spread = [zeros(T * size + 1).index_add(0, tokens[p], odds[p]) for p in range(P)]  # of tokens kept
    credit = zeros(P, C)
    for p in range(P):
        n = tokens[p][:, None] + torch.arange(T * size + 1)  # with what the other prompt's group adds [M, TK + 1]
        share = (spread[1 - p] / n.clamp(min=1)).sum(1) * kept[p]  # [M]
        credit[p] = _collect(chosen, (odds[p] * share)[:, None] * _standardized(gains[p], True))
    if given_informative:
        credit /= informative(policy, size)
    return ascent(policy, credit[..., None].expand(-1, -1, T))


def informative(policy: TabularPolicy, size: int) -> float:
    """Return the probability that the episodes of at least one of the groups differ in reward."""
    never = 1.0
    for p in range(P):
        levels = _totals(AT_THE_END)[p]
        never *= sum(float(chances(policy)[p][levels == level].sum()) ** size for level in levels.unique())
    return 1 - never


def whitened_gradient(policy: TabularPolicy, size: int, values: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return E Σ_i 1/n Σ_t (v_{i,t} - mean) / (std + 1e-8) ∇log π; mean, std and n are of all tokens of the rollout.

    Args:
        policy: of the tiny world.
        size: K.
        values: v of every step of every group, one tensor [M, K, T] a prompt.
    """
    chosen = _tuples(size)
    there = MASK[chosen]  # [M, K, T]
    values = [value.where(there, 0) for value in values]
    odds = [_odds(policy, p, chosen) for p in range(P)]
    sums = [torch.stack([there.sum((1, 2)), v.sum((1, 2)), v.square().sum((1, 2))], 1) for v in values]  # of [M, 3]
    credit = zeros(P, C, T)
    for p in range(P):
        others, which = sums[1 - p].unique(dim=0, return_inverse=True)  # [U, 3]
        other_odds = zeros(len(others)).index_add(0, which, odds[1 - p])
        n, total, squares = (sums[p][:, None] + others).unbind(-1)  # [M, U]
        deviation = ((n * squares - total.square()).clamp(min=0) / n.square()).sqrt()
        scale = (other_odds / (n * (deviation + 1e-8))).where(deviation > 0, 0)  # equal values have no advantage
        advantages = values[p] * scale.sum(1)[:, None, None] - (scale * total / n).sum(1)[:, None, None]
        credit[p] = _collect(chosen, odds[p][:, None, None] * advantages)
    return ascent(policy, credit)


def token_mean_gradient(policy: TabularPolicy, size: int, advantages: torch.Tensor) -> torch.Tensor:
    """Return E Σ_i 1/n Σ_t A_{i,t} ∇log π for advantages that depend on the episode alone [P, C, T]; n as above."""
    pi = chances(policy)
    lengths = [zeros(T + 1).index_add(0, LENGTHS, pi[p]) for p in range(P)]
    credit = zeros(P, C, T)
    for p in range(P):
        rest = torch.ones(1, dtype=torch.float64)
        for other in [p] * (size - 1) + [1 - p] * size:
            rest = _convolve(rest, lengths[other])
        n = LENGTHS[:, None] + torch.arange(len(rest))
        credit[p] = (size * pi[p] * (rest / n).sum(1))[:, None] * advantages[p]
    return ascent(policy, credit)


def episode_sum_gradient(policy: TabularPolicy, advantages: torch.Tensor) -> torch.Tensor:
    """Return E Σ_i 1/N Σ_t A_{i,t} ∇log π for such advantages: what they are worth without the mean over tokens."""
    return ascent(policy, chances(policy)[..., None] * advantages / P)


# What a step is worth.


def group_values(size: int, rewards: torch.Tensor, centred: bool) -> list[torch.Tensor]:
    """Return Σ_{k≥t} r_k of every step of every group, one tensor [M, K, T] a prompt.

    Args:
        size: K.
        rewards: [P, S, V].
        centred: whether the group's mean at t is subtracted, where an ended episode counts with its last one.
    """
    chosen = _tuples(size)
    earned, to_go = paid(rewards), zeros(P, C, T)
    for c, length in enumerate(LENGTHS.tolist()):
        for t in range(T):
            to_go[:, c, t] = earned[:, c, min(t, length - 1) :].sum(-1)
    values = to_go[:, chosen]  # [P, M, K, T]
    return list(values - values.mean(2, keepdim=True) if centred else values)


def lambda_advantages(values: torch.Tensor, rewards: torch.Tensor, lam: float, gamma: float = 1.0) -> torch.Tensor:
    """Return the mean of the n-step errors with weights (1-λ) λ^(n-1), all that is left to the last one [P, C, T].

        e_n = r_t + γ r_{t+1} + ... + γ^n V(s_{t+n}) - V(s_t)                     (Schulman et al. 2016, eqs. 11 to 16)

    Args:
        values: V of every state [P, S]; nothing follows an episode.
        rewards: [P, S, V].
        lam: λ.
        gamma: γ.
    """
    table, earned = values.detach()[:, STATES].tolist(), paid(rewards).tolist()
    out = zeros(P, C, T)
    for p in range(P):
        for c, length in enumerate(LENGTHS.tolist()):
            for t in range(length):
                left = length - t
                errors = []
                for n in range(1, left + 1):
                    ahead = gamma**n * table[p][c][t + n] if n < left else 0.0
                    errors.append(sum(gamma**k * earned[p][c][t + k] for k in range(n)) + ahead - table[p][c][t])
                mixed = (1 - lam) * sum(lam**n * error for n, error in enumerate(errors[:-1]))
                out[p, c, t] = mixed + lam ** (left - 1) * errors[-1]
    return out


def length_adaptive_advantages(values: torch.Tensor, rewards: torch.Tensor, alpha: float) -> torch.Tensor:
    """Return the same with λ = 1 - 1/(α T) of each completion's own length T, at least 0 [P, C, T]."""
    out = zeros(P, C, T)
    for length in LENGTHS.unique().tolist():
        own = length == LENGTHS
        out[:, own] = lambda_advantages(values, rewards, max(0.0, 1 - 1 / (alpha * length)))[:, own]
    return out


def of_members(size: int, values: torch.Tensor) -> list[torch.Tensor]:
    """Return values of completions [P, C, T] as those of groups, one tensor [M, K, T] a prompt."""
    return list(values[:, _tuples(size)])


# Small parts.


def _tuples(size: int) -> torch.Tensor:
    return torch.cartesian_prod(*[torch.arange(C)] * size).reshape(-1, size)  # [M, K]


def _odds(policy: TabularPolicy, prompt: int, chosen: torch.Tensor) -> torch.Tensor:
    return chances(policy)[prompt][chosen].prod(1)  # [M]


def _totals(rewards: torch.Tensor) -> torch.Tensor:
    return paid(rewards).sum(-1)  # [P, C]


def _standardized(gains: torch.Tensor, divided: bool) -> torch.Tensor:
    gaps = gains - gains.mean(1, keepdim=True)  # [M, K]
    return gaps / (gains.std(1, correction=1, keepdim=True) + 1e-4) if divided else gaps


def _collect(chosen: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Add up what each completion gets over all tuples: [M, K, ...] to [C, ...]."""
    return values.new_zeros(C, *values.shape[2:]).index_add(0, chosen.flatten(), values.flatten(0, 1))


def _convolve(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = zeros(len(a) + len(b) - 1)
    for i, weight in enumerate(b):
        out[i : i + len(a)] += weight * a
    return out
