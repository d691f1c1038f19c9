"""Learning curves of many runs in one figure, read from their progress.csv."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .statistics import interquartile_mean

POINTS = 200
PANELS = {"rollout/ep_rew_mean": "reward of sampled episodes", "rollout/kl_start": "KL to the start, nats per step"}


def read_curve(path: Path, x: str, y: str) -> np.ndarray:
    """Return two columns of a progress.csv [2, n], without rows in which one of them is empty."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [(row[x], row[y]) for row in csv.DictReader(file) if row.get(x) and row.get(y)]
    return np.array(rows, dtype=float).reshape(-1, 2).T


def spread(curves: Sequence[np.ndarray]) -> np.ndarray:
    """Return common x, interquartile mean, minimum and maximum of curves [2, n], each with its own x, as [4, POINTS].

    Curves are interpolated linearly. A curve that ends early keeps its last value: without the runs that reached their
    goal early, the mean would fall.
    """
    grid = np.linspace(min(x[0] for x, _ in curves), max(x[-1] for x, _ in curves), POINTS)
    values = np.stack([np.interp(grid, x, y) for x, y in curves], axis=-1)  # [POINTS, runs]
    return np.stack([grid, interquartile_mean(values), values.min(-1), values.max(-1)])


def draw(figure: Any, runs: Mapping[str, Sequence[Path]], x: str, label: str) -> None:
    """Draw a panel of reward and one of KL: per agent the interquartile mean, and a band from worst to best run.

    Args:
        figure: of matplotlib.
        runs: progress.csv files by agent.
        x: column of the horizontal axis.
        label: of that axis.
    """
    panels = figure.subplots(1, len(PANELS))
    for panel, (column, title) in zip(panels, PANELS.items(), strict=True):
        for number, (agent, paths) in enumerate(runs.items()):
            curves = [curve for curve in (read_curve(path, x, column) for path in paths) if curve.size]
            if curves:
                grid, middle, low, high = spread(curves)
                panel.plot(grid, middle, color=f"C{number}", linewidth=1.5, label=agent)
                panel.fill_between(grid, low, high, color=f"C{number}", alpha=0.12, linewidth=0)
        panel.set_xlabel(label)
        panel.set_title(title)
        panel.grid(alpha=0.25)
    if panels[0].get_legend_handles_labels()[0]:
        panels[0].legend(fontsize="small")
