"""The charts of a report: one metric each, with a panel per kind of runs: its curve, its band, its evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .collect import Kind
from .curves import SAME, draw_one, merge_equal, spread
from .metrics import METRICS, Metric
from .plots import LINE, as_svg

SIZE, SMALL = (4.1, 2.35), (2.9, 1.7)  # inches; the page makes them as wide as their column
WINDOW = 0.1  # of the log: what a running mean averages
RAW_POINTS = 400  # single figures are drawn up to so many
POINTS = 300  # of a running mean are drawn
NOISE = 1e-6  # rounding makes a KL of 0 so large; charts with nothing above it are left out


@dataclass(frozen=True)
class Line:
    """What is drawn of one kind of runs, or of several whose figures coincide.

    Attributes:
        label: its name; joined names of several kinds.
        band: x, the curve and the lower and upper end of its band [4, n]; None if nothing was logged.
        dots: x and y of its evaluations [2, n]; None without any.
        raw: x and y of single figures, drawn behind [2, n]; None to draw none.
    """

    label: str
    band: np.ndarray | None
    dots: np.ndarray | None
    raw: np.ndarray | None

    @property
    def values(self) -> np.ndarray:
        """Everything that is drawn, but for the band [n]; the last value of the curve, or else of the dots, is last."""
        drawn = [self.raw, self.dots, None if self.band is None else self.band[:2]]
        return np.concatenate([each[1] for each in drawn if each is not None])


@dataclass(frozen=True)
class Chart:
    """A metric of all kinds.

    Attributes:
        title: of the metric.
        note: how to read it.
        drawings: label and SVG of each line; the label is empty if there is only one.
        description: the figures at the end in words, for readers who see no picture.
    """

    title: str
    note: str
    drawings: tuple[tuple[str, str], ...]
    description: str


def charts_of(kinds: Sequence[Kind]) -> list[Chart]:
    """Return the charts of all metrics that are in the log, more than rounding, and not those of another chart."""
    runs, axis = [run for kind in kinds for run in kind.runs], axis_of(kinds)
    parts = dict.fromkeys(name for run in runs for name in run.columns if "/parts/" in name)
    of_parts = [Metric(name, f"Part of the reward: {name.split('/parts/')[1]}", "Mean of an update.") for name in parts]
    grouped = any((run["rollout/group_size_min"].values > 1).any() for run in runs)
    charts, drawn = [], set[bytes]()
    for number, metric in enumerate([*METRICS[:2], *of_parts, *METRICS[2:]]):
        figures = b"".join(run.curve(axis, name).tobytes() for run in runs for name in (metric.column, metric.held_out))
        if figures in drawn or (metric.of_groups and not grouped):
            continue
        drawn.add(figures)
        lines = lines_of(metric, kinds, axis)
        if any((abs(line.values) > NOISE).any() for line in lines):
            charts.append(_chart(f"chart-{number}", metric, lines))
    return charts


def axis_of(kinds: Sequence[Kind]) -> str:
    """Return the column of the horizontal axis: updates of one kind; what updates are made of, to compare several."""
    if len(kinds) == 1:
        return "time/iterations"
    return "time/episodes" if kinds[0].runs[0].is_text else "time/total_timesteps"


def lines_of(metric: Metric, kinds: Sequence[Kind], axis: str) -> list[Line]:
    """Return the lines of a metric; kinds with equal figures share one."""
    runs = {kind.label: kind.runs for kind in kinds}
    curves, dots = (
        {label: [curve for run in own if (curve := run.curve(axis, name)).size] for label, own in runs.items()}
        for name in (metric.column, metric.held_out)
    )
    merged, lines = merge_equal({label: [*curves[label], *dots[label]] for label in curves}), []
    for label, (first, *_) in merged.items():
        own = [curve * [[1], [metric.sign]] for curve in curves[first]]
        if not own and not dots[first]:
            continue
        band = spread(own) if len(own) > 1 else None
        if len(own) == 1:
            whole = running_mean(own[0], runs[first][0].curve(axis, metric.spread))
            band = whole[:, np.unique(np.linspace(0, whole.shape[1] - 1, POINTS).round().astype(int))]
        raw = own[0] if len(own) == len(merged) == 1 and own[0].shape[1] <= RAW_POINTS else None
        lines.append(Line(label, band, _mean_at(dots[first]) if dots[first] else None, raw))
    return lines


def running_mean(curve: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Return x, the mean of the figures around each, and a band around it, as [4, n].

    Args:
        curve: x and y [2, n].
        std: x and the standard deviation of an update's episodes [2, n], which is the band; without any, there is none.
    """
    x, y = curve
    window = np.ones(2 * max(round(WINDOW * len(x) / 2), 1) + 1 if len(x) > 4 else 1)

    def average(values: np.ndarray) -> np.ndarray:
        return np.convolve(values, window, "same") / np.convolve(np.ones(len(x)), window, "same")

    mean = average(y)
    wide = average(np.interp(x, *std)) if std.size else 0.0
    return np.stack([x, mean, mean - wide, mean + wide])


def _mean_at(dots: Sequence[np.ndarray]) -> np.ndarray:
    """Return the evaluations, averaged over the runs that made one at the same x, as [2, n]."""
    points = np.concatenate(dots, axis=1)
    x = np.unique(points[0])
    return np.stack([x, [points[1, points[0] == each].mean() for each in x]])


def _chart(name: str, metric: Metric, lines: Sequence[Line]) -> Chart:
    drawings, ends = [], []
    for i, line in enumerate(lines):
        draw = partial(_draw, line=line, others=lines, share=metric.share)
        label, size = (line.label, SMALL) if len(lines) > 1 else ("", SIZE)
        drawings.append((label, as_svg(draw, f"{name}-{i}", size)))
        ends.append(f"{line.label.replace(SAME, ' and ')} {_said(line.values[-1], metric.share)}")
    return Chart(metric.title, metric.note, tuple(drawings), f"{metric.title}, at the end: {'; '.join(ends)}")


def _draw(figure: Any, line: Line, others: Sequence[Line], share: bool) -> None:
    """Draw one line with its band, the others behind it, and its last value beside it."""
    axes = figure.add_axes((0.15, 0.14, 0.7, 0.8))
    draw_one(axes, line.label, {each.label: each.band for each in others if each.band is not None})
    if line.raw is not None:
        axes.plot(*line.raw, color=LINE, linewidth=0.7, alpha=0.4)
    if line.dots is not None:
        axes.plot(*line.dots, "o", color=LINE, markersize=4, clip_on=False, zorder=4)
    last, place = line.values[-1], axes.get_yaxis_transform()
    axes.text(1.03, last, _said(last, share), transform=place, va="center", fontsize=8.5, color=LINE)
    _limit(axes, others, share)


def _limit(axes: Any, lines: Sequence[Line], share: bool) -> None:
    """Show a little more than the figures, but no share above 1 and no length below 0; a wide band may be cut."""
    values = np.concatenate([line.values for line in lines])
    low, high = float(values.min()), float(values.max())
    flat = high - low <= NOISE * max(abs(low), abs(high))
    margin = max(0.1 * abs(high), 1e-3) if flat else 0.12 * (high - low)
    bottom = max(low - margin, 0.0) if low >= 0 else low - margin
    axes.set_ylim(bottom, min(high + margin, 1.0) if share else high + margin)
    if share:
        axes.yaxis.set_major_formatter(lambda value, _: _said(value, share))


def _said(value: float, share: bool) -> str:
    """Return a figure in a few characters."""
    return f"{100 * value:.3g} %" if share else f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.3g}"
