"""Learning curves of several runs: a mean with its band, and which of them are equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .history import History, read_columns
from .statistics import interquartile_mean

POINTS = 200
COMPARED = ("rollout/ep_rew_mean", "rollout/kl_start")


def read_curves(path: Path) -> list[np.ndarray]:
    """Return the curves that tell runs apart, from a progress.csv, each [2, n] over steps; see `History.curve`."""
    table = History(read_columns(path))
    return [table.curve("time/total_timesteps", name) for name in COMPARED]


def spread(curves: Sequence[np.ndarray]) -> np.ndarray:
    """Return common x, interquartile mean, minimum and maximum of curves [2, n], each with its own x, as [4, POINTS].

    Curves are interpolated linearly. A curve that ends early keeps its last value: without the runs that reached their
    goal early, the mean would fall.
    """
    grid = np.linspace(min(x[0] for x, _ in curves), max(x[-1] for x, _ in curves), POINTS)
    values = np.stack([np.interp(grid, x, y) for x, y in curves], axis=-1)  # [POINTS, runs]
    return np.stack([grid, interquartile_mean(values), values.min(-1), values.max(-1)])


def merge_equal(curves: Mapping[str, Sequence[np.ndarray]]) -> list[list[str]]:
    """Return the names of curves, together where all curves of theirs are equal; those without any stay alone.

    Two algorithms may be one at some settings, such as leave-one-out and REINFORCE with that baseline.

    Args:
        curves: by name, those of all runs in the same order.
    """
    groups: dict[Any, list[str]] = {}
    for name, own in curves.items():
        drawn = any(curve.size for curve in own)
        groups.setdefault(tuple((curve.shape, curve.tobytes()) for curve in own) if drawn else name, []).append(name)
    return list(groups.values())
