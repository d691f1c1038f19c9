"""Sums and means over the episodes of a group: the rows of [N, T] whose group is the same."""

from __future__ import annotations

import torch

from ..rollout import Rollout


def counted(rollout: Rollout) -> torch.Tensor:
    """Return which episodes are compared with others, bool [N]: all with a verdict and at least one step."""
    return rollout.learnable.any(1)


def group_mean(returns: torch.Tensor, rollout: Rollout) -> torch.Tensor:
    """Return b_t = 1/K Σ_j G_{j,t} over the episodes of the same prompt, one's own included."""
    return mean_of_rows(returns, rollout.groups, counted(rollout))


def mean_of_rows(returns: torch.Tensor, groups: torch.Tensor, ok: torch.Tensor) -> torch.Tensor:
    """Return, for each row, the mean of the rows of its group that are ok [N, T]."""
    anchor, centred, counts = centred_on_first(returns, groups, ok)
    return anchor + group_sum(centred.where(ok[:, None], 0), groups) / counts.clamp(min=1)


def centred_on_first(
    returns: torch.Tensor, groups: torch.Tensor, ok: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Subtract from each row the first row of its group that is ok [N].

    Sums of equal returns are then sums of exact zeros, so that equal returns give exactly zero advantage.

    Returns:
        The subtracted rows [N, T], the differences [N, T], the number of such rows of its group [N, 1].
    """
    anchor = returns[first_rows(groups, ok).clamp(max=len(groups) - 1)]
    return anchor, returns - anchor, group_sum(ok[:, None].long(), groups)


def first_rows(groups: torch.Tensor, ok: torch.Tensor) -> torch.Tensor:
    """Return, for each row, the first row of its group that is ok [N]; N if none is."""
    rows = torch.arange(len(groups), device=groups.device)
    member = numbered(groups)
    return torch.full_like(rows, len(rows)).scatter_reduce(0, member, rows.where(ok, len(rows)), "amin")[member]


def group_sum(values: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Return, for each row, the sum of the rows of its group [N, ...]."""
    member = numbered(groups)
    return torch.zeros_like(values).index_add(0, member, values)[member]


def sum_before(values: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Return, for each row, the sum of the earlier rows of its group [N, M]; the rows of a group are neighbours."""

    def moved_down(rows: torch.Tensor, by: int) -> torch.Tensor:
        same = (groups[by:] == groups[:-by])[:, None]
        return torch.cat([torch.zeros_like(rows[:by]), rows[:-by].where(same, 0)])

    found, span = moved_down(values, 1), 1
    while span < len(values):
        found = found + moved_down(found, span)
        span *= 2
    return found


def numbered(groups: torch.Tensor) -> torch.Tensor:
    """Return the groups [N] numbered from 0, in order; unlike `unique`, it needs no look at their values."""
    ordered, order = groups.sort()
    begins = torch.nn.functional.pad(ordered[1:] != ordered[:-1], (1, 0))
    return torch.empty_like(groups).index_copy(0, order, begins.cumsum(0))
