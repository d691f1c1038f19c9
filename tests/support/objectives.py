"""Closed forms of objectives other than the expected reward, with none of the agents' code in them.

In the world of `tabular.py`. An objective of one prompt is a differentiable function of the probabilities of its
completions π [C] and their rewards R [C]; the gradient is that of its mean over prompts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import torch
from family import ascent, chances, paid
from tabular import AT_THE_END, MASK, WORLD, C, P, T, TabularPolicy, completion_log_probs

Objective = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # of π [C] and R [C]
LENGTHS = MASK.sum(1)
WEIGHTS = {"right": 1.0, "short": 0.5}  # of the parts "right", R, and "short", 1/T_i
SOLVED = (AT_THE_END == 1).double()  # rewards of 0 and 1 [P, S, V]
SUM = AT_THE_END + WORLD.at_the_end((WEIGHTS["short"] / LENGTHS.double()).expand(P, C))  # the parts' sum [P, S, V]


def objective_gradient(policy: TabularPolicy, objective: Objective, rewards: torch.Tensor) -> torch.Tensor:
    """Return ∇ of the mean over prompts of an objective [P, S, V]."""
    pi, gains = completion_log_probs(policy.logits.log_softmax(-1)).exp(), paid(rewards).sum(-1)  # [P, C]
    total = torch.stack([objective(pi[p], gains[p]) for p in range(P)]).mean()
    return torch.autograd.grad(total, policy.logits)[0]


def truncated_log_likelihood(pi: torch.Tensor, gains: torch.Tensor, order: int) -> torch.Tensor:
    """Return -Σ_{k=1}^{order} (1-p)^k / k, with p = Σ π R: log p is that with every k."""
    wrong = 1 - (pi * gains).sum()
    return -sum((wrong**k / k for k in range(1, order + 1)), torch.zeros(()))


def expected_best(pi: torch.Tensor, gains: torch.Tensor, k: int) -> torch.Tensor:
    """Return E max of the rewards of k completions: Σ_x x (P(R ≤ x)^k - P(R < x)^k); pass@k if they are 0 and 1."""
    total = torch.zeros(())
    for x in gains.unique():
        total = total + x * (pi[gains <= x].sum() ** k - pi[gains < x].sum() ** k)
    return total


def group_advantage_gradient(
    policy: TabularPolicy,
    size: int,
    advantages: Callable[[torch.Tensor], torch.Tensor],
    rewards: torch.Tensor = AT_THE_END,
) -> torch.Tensor:
    """Return E Σ_i 1/N Σ_t A_i ∇log π over all ordered groups; `advantages` maps rewards [M, K] to A [M, K]."""
    chosen = torch.cartesian_prod(*[torch.arange(C)] * size).reshape(-1, size)  # [M, K]
    credit = torch.zeros(P, C, dtype=torch.float64)
    for p in range(P):
        odds = chances(policy)[p][chosen].prod(1, keepdim=True)  # [M, 1]
        share = odds * advantages(paid(rewards)[p].sum(-1)[chosen]) / (P * size)
        credit[p].index_add_(0, chosen.flatten(), share.flatten())
    return ascent(policy, credit[..., None].expand(-1, -1, T))


def over_mean(gains: torch.Tensor) -> torch.Tensor:
    """Return (R - mean) / mean of groups [M, K]; 0 where the mean is not above 0."""
    mean = gains.mean(1, keepdim=True)
    return (gains / mean.where(mean > 0, 1) - 1).where(mean > 0, 0)


def best_of_subsets(gains: list[float], k: int, baseline: str) -> list[float]:
    """Return n s_i, s_i^(loo) times n - 1, or n s_i^(loo-1), by visiting every subset (arXiv:2505.15201).

    Args:
        gains: of a group [n].
        k: size of the subsets whose best counts.
        baseline: "none"; "loo", the best of k of the others; "loo-1", the best of the others in the same subset.
    """
    n = len(gains)
    out = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        rests = list(itertools.combinations(others, k - 1))
        best = sum(max(gains[j] for j in (i, *rest)) for rest in rests) / len(rests)
        sizes = {"loo": min(k, n - 1), "loo-1": max(k - 1, 1)}
        compared = list(itertools.combinations(others, sizes[baseline])) if baseline in sizes else []
        without = sum(max(gains[j] for j in rest) for rest in compared) / max(len(compared), 1)
        out.append(k * (best - without))
    return out


def parts_gradient(policy: TabularPolicy, size: int, weights: dict[str, float] = WEIGHTS) -> torch.Tensor:
    """Return E Σ_i 1/(N T_i) Σ_t A_i ∇log π of GDPO over rollouts with one group of each prompt.

    A_i is Σ_c w_c (r_c - mean) / (std + 1e-4) in the group, then (A - mean) / (std + 1e-8) over the N = PK episodes.
    """
    chosen = torch.cartesian_prod(*[torch.arange(C)] * size).reshape(-1, size)  # [M, K]
    odds = [chances(policy)[p][chosen].prod(1) for p in range(P)]  # of [M]
    values = []  # of [M, K]
    for p in range(P):
        columns = {"right": paid(AT_THE_END)[p].sum(-1), "short": 1 / LENGTHS.double()}  # [C]
        scores = torch.zeros(chosen.shape, dtype=torch.float64)
        for name, weight in weights.items():
            part = columns[name][chosen]
            spread = (part.var(1, correction=1, keepdim=True)).sqrt()
            scores += weight * (part - part.mean(1, keepdim=True)) / (spread + 1e-4)
        values.append(scores)
    sums = [torch.stack([v.sum(1), v.square().sum(1)], 1).round(decimals=13) for v in values]  # of [M, 2]
    credit = torch.zeros(P, C, dtype=torch.float64)
    for p in range(P):
        others, which = sums[1 - p].unique(dim=0, return_inverse=True)  # [U, 2]
        other_odds = torch.zeros(len(others), dtype=torch.float64).index_add(0, which, odds[1 - p])
        total, squares = (sums[p][:, None] + others).unbind(-1)  # [M, U]
        mean = total / (P * size)
        deviation = (squares / (P * size) - mean.square()).clamp(min=0).sqrt()
        scale = (other_odds / (deviation + 1e-8)).where(deviation > 1e-9, 0)  # equal values have no advantage
        advantages = values[p] * scale.sum(1)[:, None] - (scale * mean).sum(1)[:, None]
        share = odds[p][:, None] * advantages / (P * size * LENGTHS[chosen])
        credit[p].index_add_(0, chosen.flatten(), share.flatten())
    return ascent(policy, credit[..., None].expand(-1, -1, T))


truncated = {order: partial(truncated_log_likelihood, order=order) for order in range(1, 8)}
