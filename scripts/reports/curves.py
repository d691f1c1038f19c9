"""Learning curves of many runs, read from their progress.csv: a small panel per agent, with the others behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .history import History, read_columns
from .plots import PAPER, Palette
from .statistics import interquartile_mean

POINTS = 200
PANELS = {"rollout/ep_rew_mean": "reward of sampled episodes", "rollout/kl_start": "KL to the start, nats per step"}
COLUMNS = 5  # of panels, at most
LONG_NAME = 24  # characters in the heading of a panel
SAME = " = "  # between the names of agents whose runs coincide


def read_curves(path: Path, x: str) -> list[np.ndarray]:
    """Return the curves of all panels from a progress.csv, each [2, n]; see `History.curve`."""
    table = History(read_columns(path))
    return [table.curve(x, y) for y in PANELS]


def spread(curves: Sequence[np.ndarray]) -> np.ndarray:
    """Return common x, interquartile mean, minimum and maximum of curves [2, n], each with its own x, as [4, POINTS].

    Curves are interpolated linearly. A curve that ends early keeps its last value: without the runs that reached their
    goal early, the mean would fall.
    """
    grid = np.linspace(min(x[0] for x, _ in curves), max(x[-1] for x, _ in curves), POINTS)
    values = np.stack([np.interp(grid, x, y) for x, y in curves], axis=-1)  # [POINTS, runs]
    return np.stack([grid, interquartile_mean(values), values.min(-1), values.max(-1)])


def merge_equal(curves: Mapping[str, Sequence[np.ndarray]]) -> dict[str, list[str]]:
    """Return the names under which curves are drawn, each with the names that it stands for: those with equal curves.

    Two algorithms may be one at some settings, such as leave-one-out and REINFORCE with that baseline: a curve hides
    the other then.

    Args:
        curves: by name, those of all runs and panels in the same order.
    """
    groups: dict[Any, list[str]] = {}
    for name, own in curves.items():
        drawn = any(curve.size for curve in own)
        groups.setdefault(tuple((curve.shape, curve.tobytes()) for curve in own) if drawn else name, []).append(name)
    return {SAME.join(group): group for group in groups.values()}


def read_panels(runs: Mapping[str, Sequence[Path]], x: str) -> dict[str, list[list[np.ndarray]]]:
    """Return the curves of each agent's runs, by panel; each file is read once.

    Args:
        runs: progress.csv files by agent.
        x: column of the horizontal axis.
    """
    curves = {agent: [read_curves(path, x) for path in paths] for agent, paths in runs.items()}
    return {agent: [[run[panel] for run in own] for panel in range(len(PANELS))] for agent, own in curves.items()}


def merge_panels(curves: Mapping[str, Sequence[Sequence[np.ndarray]]]) -> dict[str, list[str]]:
    """Return which agents share a panel, of what `read_panels` returned; see `merge_equal`."""
    return merge_equal({agent: [curve for panel in own for curve in panel] for agent, own in curves.items()})


def grid_of(panels: int) -> tuple[int, int]:
    """Return rows and columns for so many panels, about as many in each row."""
    rows = -(-panels // COLUMNS)
    return rows, -(-panels // rows)


def figure_size(panels: int) -> tuple[float, float]:
    """Return the width and height of a figure with so many agents, in inches."""
    rows, columns = grid_of(panels)
    return 2.5 * max(columns, 3), len(PANELS) * (2.0 * rows + 0.3)


def draw(
    figure: Any, curves: Mapping[str, Sequence[Sequence[np.ndarray]]], drawn: Mapping[str, Sequence[str]], label: str
) -> None:
    """Draw per agent a panel of reward and one of KL: the interquartile mean, and a band from worst to best run.

    The other agents' means are grey lines behind. Agents with the same runs share their panels.

    Args:
        figure: of matplotlib.
        curves: from `read_panels`.
        drawn: from `merge_panels`.
        label: of the horizontal axis.
    """
    rows, columns = grid_of(len(drawn))
    blocks = figure.subfigures(len(PANELS), 1)
    for number, (block, title) in enumerate(zip(blocks, PANELS.values(), strict=True)):
        block.suptitle(f"{title}, over {label}", x=0.01, ha="left", fontsize=11, color=PAPER.ink)
        panels = list(block.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
        found = {name: [curve for curve in curves[first][number] if curve.size] for name, (first, *_) in drawn.items()}
        spreads = {name: spread(own) for name, own in found.items() if own}
        for place, name in enumerate(drawn):
            draw_one(panels[place], name, spreads, PAPER)
            heading = name if len(name) <= LONG_NAME else name.replace(SAME, f"\n{SAME.strip()} ")
            panels[place].set_title(heading, fontsize=9, loc="left")
            panels[place].tick_params(labelbottom=place + columns >= len(drawn))
        for panel in panels[len(drawn) :]:
            panel.set_visible(False)


def draw_one(panel: Any, name: str, spreads: Mapping[str, np.ndarray], palette: Palette) -> None:
    """Draw one of several curves with its band; the others are lines behind it.

    Args:
        panel: axes of matplotlib.
        name: of the curve.
        spreads: of all curves [4, n], see `spread`.
        palette: of the figure.
    """
    calm(panel, palette)
    for other, (grid, middle, low, high) in spreads.items():
        if other == name:
            panel.fill_between(grid, low, high, color=palette.line, alpha=0.18, linewidth=0, zorder=2)
            panel.plot(grid, middle, color=palette.line, linewidth=1.6, zorder=3)
        else:
            panel.plot(grid, middle, color=palette.soft, alpha=0.4, linewidth=0.8, zorder=1)


def calm(panel: Any, palette: Palette) -> None:
    """Leave of the axes what is read: few ticks, horizontal lines, no frame."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.spines["bottom"].set_color(palette.grid)
    panel.grid(axis="y", color=palette.grid, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(length=0, labelsize=8, labelcolor=palette.soft)
    panel.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.yaxis.set_major_locator(MaxNLocator(4))
    panel.title.set_color(palette.ink)
