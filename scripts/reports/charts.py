"""The charts of a report: one metric each, of all kinds of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from .collect import Kind
from .curves import SAME, merge_equal, spread
from .drawing import Line, draw_all, draw_small, said
from .metrics import METRICS, Metric
from .plots import as_svg
from .rules import HALVES

SIZE, SMALL = (4.1, 2.35), (2.9, 1.7)  # inches; the page makes them as wide as their column
TOGETHER = 4  # lines in one chart; more get a small chart each
WINDOW = 0.1  # of the log: what a running mean averages
RAW_POINTS = 400  # single figures are drawn up to so many
POINTS = 300  # of a running mean are drawn


@dataclass(frozen=True)
class Chart:
    """A metric of all kinds.

    Attributes:
        title: of the metric.
        note: how to read it.
        drawings: label and SVG: one without a label, or a small one per line.
        description: the figures at both ends in words, for readers who see no picture.
    """

    title: str
    note: str
    drawings: tuple[tuple[str, str], ...]
    description: str


def charts_of(kinds: Sequence[Kind]) -> list[Chart]:
    """Return the charts of all metrics that are in the log and more than 0, or than what rounding makes of 0."""
    axis = axis_of(kinds)
    parts = dict.fromkeys(name for kind in kinds for run in kind.runs for name in run.columns if "/parts/" in name)
    of_parts = [Metric(name, f"Part of the reward: {name.split('/parts/')[1]}", "Mean of an update.") for name in parts]
    charts = []
    for number, metric in enumerate([*METRICS[:2], *of_parts, *METRICS[2:]]):
        lines = [] if _says_nothing(metric, kinds) else lines_of(metric, kinds, axis)
        noise = metric.noise[kinds[0].runs[0].config.get("dtype") in HALVES]
        if any((np.abs(line.values) > noise).any() for line in lines):
            charts.append(_chart(f"chart-{number}", metric, lines))
    return charts


def axis_of(kinds: Sequence[Kind]) -> str:
    """Return the column of the horizontal axis: updates of one kind; what updates are made of, to compare several."""
    if len(kinds) == 1:
        return "time/iterations"
    return "time/episodes" if kinds[0].runs[0].is_text else "time/total_timesteps"


def _says_nothing(metric: Metric, kinds: Sequence[Kind]) -> bool:
    """Tell whether a metric is another one's double, or has no meaning in these runs."""
    tables = [run.columns for kind in kinds for run in kind.runs]
    if metric.double_of:
        pairs = [(table.get(metric.double_of), table.get(metric.column)) for table in tables]
        return all(a is not None and b is not None and np.array_equal(a, b, equal_nan=True) for a, b in pairs)
    above = [table.get(metric.only_above) for table in tables] if metric.only_above else []
    return bool(above) and not any(column is not None and (column > 1).any() for column in above)


def lines_of(metric: Metric, kinds: Sequence[Kind], axis: str) -> list[Line]:
    """Return the lines of a metric; kinds with equal figures share one."""
    curves, dots = {}, {}
    for kind in kinds:
        own = [run.curve(axis, metric.column) * [[1], [metric.sign]] for run in kind.runs]
        held_out = [run.curve(axis, metric.held_out) for run in kind.runs] if metric.held_out else []
        curves[kind.label] = [curve for curve in own if curve.size]
        dots[kind.label] = [curve for curve in held_out if curve.size]
    merged = merge_equal({label: [*curves[label], *dots[label]] for label in curves})
    places = {kind.label: place for place, kind in enumerate(kinds)}
    lines = []
    for label, (first, *_) in merged.items():
        own, evaluated, run = curves[first], dots[first], kinds[places[first]].runs[0]
        if not own and not evaluated:
            continue
        alone = own[0] if len(own) == 1 else None
        band = spread(own) if len(own) > 1 else None
        if alone is not None:
            whole = running_mean(alone, run.curve(axis, metric.spread) if metric.spread else None)
            band = whole[:, np.unique(np.linspace(0, whole.shape[1] - 1, POINTS).round().astype(int))]
        raw = alone if alone is not None and len(merged) == 1 and alone.shape[1] <= RAW_POINTS else None
        color = places[first] if len(merged) <= TOGETHER else 0
        lines.append(Line(label, color, band, _mean_at(evaluated) if evaluated else None, raw))
    return lines


def _chart(name: str, metric: Metric, lines: Sequence[Line]) -> Chart:
    ends = [f"{line.label.replace(SAME, ' and ')} {said(line.last, metric.share)}" for line in lines]
    description = f"{metric.title}, at the end: {'; '.join(ends)}"
    if len(lines) <= TOGETHER:
        drawing = as_svg(partial(draw_all, lines=lines, share=metric.share), name, SIZE)
        return Chart(metric.title, metric.note, (("", drawing),), description)
    small = [
        (line.label, as_svg(partial(draw_small, line=line, others=lines, share=metric.share), f"{name}-{i}", SMALL))
        for i, line in enumerate(lines)
    ]
    return Chart(metric.title, metric.note, tuple(small), description)


def running_mean(curve: np.ndarray, std: np.ndarray | None = None) -> np.ndarray:
    """Return x, the mean of the figures around each, and a band of one standard deviation around it, as [4, n].

    Args:
        curve: x and y [2, n].
        std: x and the standard deviation of an update's episodes [2, n]; None to take that of the figures averaged.
    """
    x, y = curve
    half = max(round(WINDOW * len(x) / 2), 1) if len(x) > 4 else 0
    windows = [y[max(i - half, 0) : i + half + 1] for i in range(len(y))]
    mean = np.array([window.mean() for window in windows])
    wide = np.array([window.std() for window in windows])
    if std is not None and std.size:
        wide = running_mean(np.stack([x, np.interp(x, *std)]))[1]
    return np.stack([x, mean, mean - wide, mean + wide])


def _mean_at(dots: Sequence[np.ndarray]) -> np.ndarray:
    """Return the evaluations, averaged over the runs that made one at the same x, as [2, n]."""
    points = np.concatenate(dots, axis=1)
    x = np.unique(points[0])
    return np.stack([x, [points[1, points[0] == each].mean() for each in x]])
