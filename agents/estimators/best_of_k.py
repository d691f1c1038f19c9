"""Credit for the best of k: the amount that each of n samples adds to the highest reward among k of them."""

from __future__ import annotations

import torch

from ..devices import widest
from ..rollout import Rollout
from .groups import counted, group_sum, numbered, sum_before

BASELINES = ("none", "loo", "loo-1")


def best_of_k(returns: torch.Tensor, rollout: Rollout, k: int, baseline: str = "loo-1") -> torch.Tensor:
    """Return the credit of each episode for the best of k of its group (Walder & Karkhanis 2025, arXiv:2505.15201).

        A_i = k (mean_{I∋i, |I|=k} max_{j∈I} R_j - b_i)

    over subsets I of the n episodes of the group with a verdict. Σ_i A_i ∇log π_i / n is an unbiased estimate of the
    gradient of the expected maximum of k rewards, for every b_i made of the others; of pass@k if rewards are 0 and 1.
    A_i is n times the paper's s_i.

    | baseline | b_i | the paper's |
    |---|---|---|
    | none | 0 | s, equation 19 |
    | loo | the mean best of k others, or of n - 1 if k = n | s^(loo), equation 29, rescaled as below |
    | loo-1 | the mean best of k - 1 others: those of I; for k = 1, their mean | s^(loo-1), equation 33 |

    A group with n < k verdicts counts for the best of n, and one of a single verdict has A = 0, unless the baseline is
    "none". Equal returns have exactly A = 0 with a baseline. (Equation 29 subtracts n/(n-1) times the "loo" here, which
    is unbiased but does not cancel equal rewards.) The subsets are not visited: between the sorted returns of a group
    are gaps d_m, and each counts with the probability that the best of so many others is below it.

    For k < n, "loo" is the only symmetric function of the others' returns with which the A of every group add up to 0.
    So it is what Takashiro et al. 2026 (arXiv:2606.06080) call the leave-two-out baseline, as far as their abstract
    says what that is: "loo-1", less the mean A of the others in the group without i.

    Args:
        returns: [N, 1] or [N, T] with equal columns, as `episode_return` makes them.
        rollout: for its groups and which episodes count.
        k: at least 1.
        baseline: one of `BASELINES`.

    Returns:
        A [N, T]; anything for episodes without a verdict.
    """
    rows = counted(rollout)
    member = numbered(rollout.groups).where(rows, len(rows))  # episodes without a verdict are a group apart
    gains = returns[:, 0].where(rows, 0).to(widest(rows.device))  # [N]
    order = gains.argsort(stable=True)
    order = order[member[order].argsort(stable=True)]  # by group, then by return
    member, gains = member[order], gains[order]
    begins = torch.nn.functional.pad(member[1:] != member[:-1], (1, 0), value=True)
    places = torch.arange(len(rows), device=rows.device)
    rank = places - places.where(begins, 0).cummax(0).values  # m, 0 for the lowest of the group
    gaps = gains.diff(prepend=gains[:1]).where(~begins, 0)  # d_m, between the returns of rank m - 1 and m
    others = group_sum(torch.ones_like(rank), member) - 1
    joined = others.clamp(max=k - 1)  # how many others are in a subset with i
    rivals = {"none": 0 * joined, "loo": (joined + 1).clamp(max=others), "loo-1": joined.clamp(min=1).clamp(max=others)}
    rival = rivals[baseline]  # of how many others the best is subtracted; of none, it is the lowest return
    # Below a gap under i are m others, below one over i are m - 1.
    won = gaps * _all_lowest(rank, rival, others, k)
    missed = gaps * (_all_lowest(rank - 1, joined, others, k) - _all_lowest(rank - 1, rival, others, k))
    paid = won + missed
    credit = paid + sum_before(paid[:, None], member)[:, 0] - group_sum(missed, member)
    if baseline == "none":
        credit = credit + group_sum(gains.where(begins, 0), member)
    credit = (joined + 1) * credit
    return torch.empty_like(credit).index_copy(0, order, credit).to(returns)[:, None].expand_as(returns)


def _all_lowest(lowest: torch.Tensor, drawn: torch.Tensor, total: torch.Tensor, most: int) -> torch.Tensor:
    """Return the probability that all that are drawn, out of a total, are among the lowest ones, [N] each.

    Args:
        lowest: how many they are.
        drawn: how many are drawn, without replacement.
        total: out of how many.
        most: at least the largest of `drawn`.
    """
    chance = torch.ones_like(lowest, dtype=widest(lowest.device))
    for i in range(most):
        factor = (lowest - i).clamp(min=0).to(chance) / (total - i).clamp(min=1)
        chance = chance * factor.where(i < drawn, 1)
    return chance
