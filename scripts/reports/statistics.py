"""The statistics of a comparison, as pure functions.

After Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice", arXiv:2108.13264.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlenv.agents.estimators.pass_at_k import bootstrap_mean

RESAMPLES = 10_000  # of the runs, with replacement; there is one task, so there is one stratum
POINTS = 200  # of a curve over several runs
Z = 1.959964  # standard deviations: 95 % of a normal distribution are nearer to its mean


def interquartile_mean(values: Any) -> np.ndarray:
    """Return the mean of the middle half along the last axis [..., n] -> [...].

        IQM = 1/(n - 2m) Σ_{m < i ≤ n-m} x_(i),    m = ⌊n/4⌋

    With fewer than four values this is the mean (Agarwal et al. 2021, section 4.3; equal to scipy's trim_mean with a
    quarter cut from each end).
    """
    ordered = np.sort(np.asarray(values, dtype=float), axis=-1)
    n = ordered.shape[-1]
    return ordered[..., n // 4 : n - n // 4].mean(-1)


def spread(curves: Sequence[np.ndarray]) -> np.ndarray:
    """Return common x, interquartile mean, minimum and maximum of curves [2, n], each with its own x, as [4, POINTS].

    Curves are interpolated linearly. A curve that ends early keeps its last value: without the runs that reached their
    goal early, the mean would fall. If all have the same single x, it is one point: browsers draw a line across the
    page for a curve of equal points.
    """
    grid = np.unique(np.linspace(min(x[0] for x, _ in curves), max(x[-1] for x, _ in curves), POINTS))
    values = np.stack([np.interp(grid, x, y) for x, y in curves], axis=-1)  # [POINTS, runs]
    return np.stack([grid, interquartile_mean(values), values.min(-1), values.max(-1)])


def worse(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str | None:
    """Return by how much an evaluation is worse than an earlier one, in words; None if that may be chance.

    Args:
        before, after: figures of `Agent.evaluate`; None if none was made. Success is compared first, then the reward.
    """
    for figure in ("success_rate", "mean_reward"):
        if before and after and None not in (before.get(figure), after.get(figure)):
            low, high = difference_interval(before, after, figure)
            if low > 0:  # more success, whatever else the reward counts
                return None
            if high < 0:
                change = f"{before[figure]:.3g} -> {after[figure]:.3g}"
                return f"{figure.replace('_', ' ')} {change}, 95 % interval of the difference {low:.3g} to {high:.3g}"
    return None


def difference_interval(before: Mapping[str, Any], after: Mapping[str, Any], figure: str) -> tuple[float, float]:
    """Return the 95 % interval of after - before, from the interval [l, u] of each figure m.

        d - √((m₂ - l₂)² + (u₁ - m₁)²)   to   d + √((u₂ - m₂)² + (m₁ - l₁)²),   d = m₂ - m₁

    Newcombe 1998, "Interval estimation for the difference between independent proportions", method 10.
    """
    (m1, l1, u1), (m2, l2, u2) = ((each[figure], *_interval(each, figure)) for each in (before, after))
    return m2 - m1 - math.hypot(m2 - l2, u1 - m1), m2 - m1 + math.hypot(u2 - m2, m1 - l1)


def _interval(figures: Mapping[str, Any], figure: str) -> tuple[float, float]:
    """Return the 95 % interval of a success rate (Wilson 1927), or of a mean reward (normal).

    Of a problem that was asked several times, the greedy answers are equal: it counts once.
    """
    counted = min(figures["episodes"], figures.get("problems", figures["episodes"]))
    n, m = counted * figures.get("success_known", 1.0), figures[figure]
    if figure == "mean_reward":
        half = Z * figures["reward_std"] / math.sqrt(counted)
        return m - half, m + half
    centre, half = m + Z**2 / (2 * n), Z * math.sqrt(m * (1 - m) / n + (Z / (2 * n)) ** 2)
    return (centre - half) / (1 + Z**2 / n), (centre + half) / (1 + Z**2 / n)


def outcome_of(results: Sequence[Mapping[str, Any]], figure: str, of: str = "eval") -> dict[str, Any]:
    """Return the results of runs as the row of a table; None for figures that no run has.

    Args:
        results: result.json of each run, {} for one that has not ended.
        figure: of the evaluations, such as "success_rate".
        of: the evaluation: "eval", after training, or "initial_eval".

    Returns:
        `runs`; `before`, the mean of the evaluations before training; of the evaluation the interquartile mean `iqm`
        over the runs with its interval `low`, `high`, and `min`, `max`, the same mean of `mean_reward`, and for text
        `problems`, the fewest that a run was asked; `updates`, `timesteps` and `seconds`, medians over the trainings.
    """
    first = [result["initial_eval"][figure] for result in results if result.get("initial_eval")]
    evaluations = [result[of] for result in results if result.get(of)]
    values, rewards = ([each[name] for each in evaluations] for name in (figure, "mean_reward"))
    row: dict[str, Any] = {"runs": len(results), "before": float(np.mean(first)) if first else None}
    row |= dict.fromkeys(("iqm", "low", "high", "min", "max", "mean_reward"))
    if values:
        ordered = sorted(values)  # so that the order of the runs does not matter
        low, high = bootstrap_mean(ordered, np.random.default_rng(0), RESAMPLES, mean=interquartile_mean)
        row |= {"iqm": float(interquartile_mean(values)), "low": low, "high": high}
        row |= {"min": float(min(values)), "max": float(max(values))}
        row["mean_reward"] = float(interquartile_mean(rewards))
    if problems := [each["problems"] for each in evaluations if "problems" in each]:
        row["problems"] = min(problems)
    for name in ("updates", "timesteps", "seconds"):
        known = [result[name] for result in results if result.get(name) is not None]
        row[name] = float(np.median(known)) if known else None
    return row
