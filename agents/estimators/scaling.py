"""Scaling: advantages divided by how much they vary. It biases the gradient; equal inputs give exactly zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from ..rollout import Rollout, without_verdicts
from .groups import counted, group_mean, group_sum


def group_std(returns: torch.Tensor, rollout: Rollout) -> torch.Tensor:
    """Return the standard deviation of each group at each of its rows [N, T].

    It is the sample's (divided by K - 1); 0, exactly, for a group of one and for equal returns.

    Args:
        returns: [N, T].
        rollout: for its groups and which episodes count.
    """
    rows = counted(rollout)[:, None]
    squares = (returns - group_mean(returns, rollout)).square().where(rows, 0)
    counts = group_sum(rows.long(), rollout.groups)  # [N, 1]
    return (group_sum(squares, rollout.groups) / (counts - 1).clamp(min=1)).sqrt()


def batch_std(returns: torch.Tensor, rollout: Rollout) -> torch.Tensor:
    """Return the standard deviation over all episodes of the rollout at each row [N, T]; otherwise as `group_std`."""
    return group_std(returns, replace(rollout, groups=torch.zeros_like(rollout.groups)))


SCALES = {"group": group_std, "batch": batch_std}


def standardize_groups(
    returns: torch.Tensor, rollout: Rollout, scale: str = "group", eps: float = 1e-4
) -> torch.Tensor:
    """Return each return less its group's mean, divided by the standard deviation of its group or of the batch.

        A_i = (R_i - mean(R)) / (std(R) + ε)                      (Shao et al. 2024, arXiv:2402.03300, section 4.1.2)

    The standard deviation is the sample's, as implementations have it; the paper does not say. A group of one, and
    equal returns, have A = 0.

    Args:
        returns: [N, T]; masked cells do not change other steps.
        rollout: for its groups and which episodes count.
        scale: "group", or "batch" for the standard deviation of all returns of the rollout (arXiv:2508.08221), so
            that a group in which one episode differs gains no weight.
        eps: ε, small against the standard deviation of rewards.

    Returns:
        A [N, T].
    """
    return (returns - group_mean(returns, rollout)) / (SCALES[scale](returns, rollout) + eps)


def over_group_mean(returns: torch.Tensor, rollout: Rollout) -> torch.Tensor:
    """Return each return less its group's mean, divided by that mean; 0 where the mean is not above rounding.

        A_i = (R_i - mean(R)) / mean(R)                                         (Tajwar et al. 2026, arXiv:2602.02710)

    Args:
        returns: [N, T]; masked cells do not change other steps.
        rollout: for its groups and which episodes count.

    Returns:
        A [N, T].
    """
    mean = group_mean(returns, rollout)
    rounding = 1e-6 * group_mean(returns.abs(), rollout)  # a mean below it is a sum that has cancelled
    return ((returns - mean) / mean).where(mean > rounding, 0)


def standardize_parts(parts: Sequence[tuple[torch.Tensor, float]], rollout: Rollout) -> torch.Tensor:
    """Return the weighted sum of the parts of the reward, each standardized in its group, whitened over the rollout.

        A_i = Σ_c w_c (r_{i,c} - mean(r_c)) / (std(r_c) + 1e-4)        (Liu et al. 2026, arXiv:2601.05242)
        A ← A / (sqrt(mean(A²)) + 1e-8)                                (the mean is over episodes)

    The second step is a whitening: mean(A) is 0, since every part's is 0 in every group. So it is not subtracted, and
    groups of equal parts have exactly A = 0. So has a rollout in which the parts cancel up to rounding.

    Args:
        parts: r_c [N] and w_c; NaN where an episode lacks a part, which then adds 0 and enters no mean.
        rollout: for its groups and which episodes count.

    Returns:
        A [N], 0 for episodes that do not count.
    """
    total, size = torch.zeros_like(parts[0][0]), torch.zeros_like(parts[0][0])
    for values, weight in parts:
        has = ~values.isnan()
        of_those = without_verdicts(rollout, ~has)
        column = standardize_groups(values.where(has, 0)[:, None], of_those)[:, 0]
        each = weight * column.where(has & counted(rollout), 0)
        total, size = total + each, size + each.abs()
    spread, rounding = ((x.square().sum() / counted(rollout).sum().clamp(min=1)).sqrt() for x in (total, 1e-6 * size))
    return (total / (spread + 1e-8)).masked_fill(spread <= rounding, 0)


def whiten(values: torch.Tensor, mask: torch.Tensor, eps: float = 1e-8) -> torch.Tensor:
    """Return the values less their mean, divided by their standard deviation, over all steps that count.

        A ← (A - mean(A)) / (std(A) + ε)

    The standard deviation is the population's (divided by the number of steps).

    Args:
        values: [N, T]; masked cells are ignored.
        mask: steps that count, bool [N, T].
        eps: ε.

    Returns:
        [N, T], 0 in masked cells.
    """
    counted_values = values[mask]
    if len(counted_values) == 0:
        return torch.zeros_like(values)
    centred = counted_values - counted_values[0]  # equal values are exact zeros from here on
    centred = centred - centred.mean()
    scaled = centred / (centred.square().mean().sqrt() + eps)
    return torch.zeros_like(values).masked_scatter(mask, scaled)
