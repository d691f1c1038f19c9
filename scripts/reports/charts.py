"""The charts of a report: one metric each, of all kinds of runs, with a band, few ticks, and dots for evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .collect import Kind
from .curves import SAME, calm, draw_one, merge_equal, spread
from .metrics import METRICS, Metric
from .plots import THEMED, as_svg

SIZE, SMALL = (4.1, 2.35), (2.9, 1.7)  # inches; the page makes them as wide as their column
TOGETHER = 4  # lines in one chart; more get a small chart each
WINDOW = 0.1  # of the log: what a running mean averages
RAW_POINTS = 400  # single figures are drawn up to so many
POINTS = 300  # of a running mean are drawn
NOISE = 1e-6  # rounding makes a KL of 0 so large; charts with nothing above it are left out


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
        drawings: label and SVG: one without a label, or a small one per line.
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
    named = {kind.label: (place, kind.runs) for place, kind in enumerate(kinds)}
    curves, dots = (
        {label: [curve for run in runs if (curve := run.curve(axis, name)).size] for label, (_, runs) in named.items()}
        for name in (metric.column, metric.held_out)
    )
    merged, lines = merge_equal({label: [*curves[label], *dots[label]] for label in curves}), []
    for label, (first, *_) in merged.items():
        own, (place, runs) = [curve * [[1], [metric.sign]] for curve in curves[first]], named[first]
        if not own and not dots[first]:
            continue
        band = spread(own) if len(own) > 1 else None
        if len(own) == 1:
            whole = running_mean(own[0], runs[0].curve(axis, metric.spread))
            band = whole[:, np.unique(np.linspace(0, whole.shape[1] - 1, POINTS).round().astype(int))]
        raw = own[0] if len(own) == len(merged) == 1 and own[0].shape[1] <= RAW_POINTS else None
        color = place % len(THEMED.lines) if len(merged) <= TOGETHER else 0
        lines.append(Line(label, color, band, _mean_at(dots[first]) if dots[first] else None, raw))
    return lines


def running_mean(curve: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Return x, the mean of the figures around each, and a band of one standard deviation around it, as [4, n].

    Args:
        curve: x and y [2, n].
        std: x and the standard deviation of an update's episodes [2, n]; without any, that of the figures averaged.
    """
    x, y = curve
    window = np.ones(2 * max(round(WINDOW * len(x) / 2), 1) + 1 if len(x) > 4 else 1)

    def average(values: np.ndarray) -> np.ndarray:
        return np.convolve(values, window, "same") / np.convolve(np.ones(len(x)), window, "same")

    mean = average(y)
    spread_of = average((y - y.mean()) ** 2) - (mean - y.mean()) ** 2
    wide = average(np.interp(x, *std)) if std.size else np.sqrt(np.maximum(spread_of, 0.0))
    return np.stack([x, mean, mean - wide, mean + wide])


def _mean_at(dots: Sequence[np.ndarray]) -> np.ndarray:
    """Return the evaluations, averaged over the runs that made one at the same x, as [2, n]."""
    points = np.concatenate(dots, axis=1)
    x = np.unique(points[0])
    return np.stack([x, [points[1, points[0] == each].mean() for each in x]])


def _chart(name: str, metric: Metric, lines: Sequence[Line]) -> Chart:
    ends = [f"{line.label.replace(SAME, ' and ')} {_said(line.values[-1], metric.share)}" for line in lines]
    if len(lines) <= TOGETHER:
        drawings = [("", as_svg(partial(_draw_all, lines=lines, share=metric.share), name, SIZE))]
    else:
        draw = partial(_draw_small, others=lines, share=metric.share)
        drawings = [
            (line.label, as_svg(partial(draw, line=line), f"{name}-{i}", SMALL)) for i, line in enumerate(lines)
        ]
    return Chart(metric.title, metric.note, tuple(drawings), f"{metric.title}, at the end: {'; '.join(ends)}")


def _draw_all(figure: Any, lines: Sequence[Line], share: bool) -> None:
    """Draw all lines in one chart, with their names beside them; a single line has its last value there."""
    several = len(lines) > 1
    axes = figure.add_axes((0.11, 0.12, 0.64 if several else 0.77, 0.82))
    calm(axes, THEMED)
    for line in sorted(lines, key=lambda line: -line.values[-1]):
        color = THEMED.lines[line.color]
        axes.plot([], [], color=color, label=line.label.replace(SAME, f"\n{SAME.strip()} "))
        if line.raw is not None:
            axes.plot(*line.raw, color=color, linewidth=0.7, alpha=0.4)
        if line.band is not None:
            axes.fill_between(line.band[0], *line.band[2:], color=color, alpha=0.15, linewidth=0)
            axes.plot(*line.band[:2], color=color, linewidth=1.8)
        if line.dots is not None:
            axes.plot(*line.dots, "o", color=color, markersize=4.5, clip_on=False, zorder=4)
    _limit(axes, lines, share)
    if several:
        look = {"frameon": False, "labelcolor": "linecolor", "handlelength": 0.8, "fontsize": 8.5}
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), **look)
    else:
        last = lines[0].values[-1]
        place = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 8.5, "color": THEMED.lines[0]}
        axes.text(1.03, last, _said(last, share), **place)


def _draw_small(figure: Any, line: Line, others: Sequence[Line], share: bool) -> None:
    """Draw one line with its band, and the others behind it."""
    axes = figure.add_axes((0.15, 0.16, 0.8, 0.78))
    draw_one(axes, line.label, {each.label: each.band for each in others if each.band is not None}, THEMED)
    if line.dots is not None:
        axes.plot(*line.dots, "o", color=THEMED.lines[0], markersize=3.5, clip_on=False, zorder=4)
    _limit(axes, others, share)


def _limit(axes: Any, lines: Sequence[Line], share: bool) -> None:
    """Show a little more than the figures, but no share above 1 and no length below 0; a wide band may be cut."""
    values = np.concatenate([line.values for line in lines])
    low, high = float(values.min()), float(values.max())
    margin = max(0.12 * (high - low), NOISE * max(abs(low), abs(high))) or 1e-3
    bottom = max(low - margin, 0.0) if low >= 0 else low - margin
    axes.set_ylim(bottom, min(high + margin, 1.0) if share else high + margin)
    if share:
        axes.yaxis.set_major_formatter(lambda value, _: _said(value, share))


def _said(value: float, share: bool) -> str:
    """Return a figure in a few characters."""
    return f"{100 * value:.3g} %" if share else f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.3g}"
