"""How a report draws curves: few ticks, a band, labels at the ends of the lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .curves import SAME, calm, draw_one
from .plots import THEMED

LABEL_GAP = 0.095  # of the height, between two labels
ROUNDING = 1e-6  # of a figure; a line that varies by less is drawn flat


@dataclass(frozen=True)
class Line:
    """What is drawn of one kind of runs, or of several whose figures coincide.

    Attributes:
        label: its name; joined names of several kinds.
        color: its place in the palette.
        band: x, the curve and the lower and upper end of its band [4, n]; None if nothing was logged.
        dots: x and y of its evaluations [2, n]; None without any.
        raw: x and y of single figures, drawn behind [2, n]; None to draw none.
    """

    label: str
    color: int
    band: np.ndarray | None = None
    dots: np.ndarray | None = None
    raw: np.ndarray | None = None

    @property
    def values(self) -> np.ndarray:
        """Everything that is drawn, but for the band [n]."""
        drawn = [None if self.band is None else self.band[1:2], self.dots, self.raw]
        return np.concatenate([each[-1] for each in drawn if each is not None])

    @property
    def last(self) -> float:
        """Where the label is."""
        of = self.dots if self.band is None else self.band
        assert of is not None  # a line has one of them
        return float(of[1][-1])


def draw_all(figure: Any, lines: Sequence[Line], share: bool) -> None:
    """Draw all lines in one chart, with their names beside them; a single line has its last value there.

    Args:
        figure: of matplotlib.
        lines: at least one.
        share: whether the figures are shares, shown in percent.
    """
    several = len(lines) > 1
    axes = figure.add_axes((0.11, 0.12, 0.64 if several else 0.77, 0.82))
    calm(axes, THEMED)
    for line in lines:
        color = THEMED.lines[line.color]
        if line.raw is not None:
            axes.plot(*line.raw, color=color, linewidth=0.7, alpha=0.4)
        if line.band is not None:
            grid, middle, low, high = line.band
            axes.fill_between(grid, low, high, color=color, alpha=0.15, linewidth=0)
            axes.plot(grid, middle, color=color, linewidth=1.8)
        if line.dots is not None:
            axes.plot(*line.dots, "o", color=color, markersize=4.5, clip_on=False, zorder=4)
    values = np.concatenate([line.values for line in lines])
    _limit(axes, values, share)
    names = [line.label.replace(SAME, f"\n{SAME.strip()} ") if several else said(line.last, share) for line in lines]
    _label(axes, [(line.last, name, THEMED.lines[line.color]) for line, name in zip(lines, names, strict=True)])


def draw_small(figure: Any, line: Line, others: Sequence[Line], share: bool) -> None:
    """Draw one line with its band, and the others behind it.

    Args:
        figure: of matplotlib.
        line: the one.
        others: all lines of the chart.
        share: whether the figures are shares.
    """
    axes = figure.add_axes((0.15, 0.16, 0.8, 0.78))
    draw_one(axes, line.label, {each.label: each.band for each in others if each.band is not None}, THEMED)
    if line.dots is not None:
        axes.plot(*line.dots, "o", color=THEMED.lines[0], markersize=3.5, clip_on=False, zorder=4)
    _limit(axes, np.concatenate([each.values for each in others]), share)


def said(value: float, share: bool) -> str:
    """Return a figure in a few characters."""
    return f"{100 * value:.3g} %" if share else f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.3g}"


def _limit(axes: Any, values: np.ndarray, share: bool) -> None:
    """Show a little more than the figures, but no share above 1 and no length below 0; a wide band may be cut."""
    low, high = float(values.min()), float(values.max())
    flat = high - low <= ROUNDING * max(abs(low), abs(high))
    margin = max(0.1 * abs(high), 1e-3) if flat else 0.12 * (high - low)
    bottom = max(low - margin, 0.0) if low >= 0 else low - margin
    top = min(high + margin, 1.0) if share else high + margin
    axes.set_ylim(bottom, top)
    if share:
        axes.yaxis.set_major_formatter(lambda value, _: said(value, share))


def _label(axes: Any, labels: Sequence[tuple[float, str, str]]) -> None:
    """Write labels to the right of the ends of their lines, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    places: list[list[Any]] = [[(value - low) / (high - low), text, color] for value, text, color in sorted(labels)]
    for below, above in pairwise(places):
        lines = 1 + below[1].count("\n")
        above[0] = max(above[0], below[0] + LABEL_GAP * lines)
    overshoot = max(places[-1][0] - 1.0, 0.0) if places else 0.0
    for height, text, color in places:
        place = {"transform": axes.transAxes, "va": "center", "fontsize": 8.5, "color": color, "clip_on": False}
        axes.text(1.03, height - overshoot, text, linespacing=1.0, **place)
