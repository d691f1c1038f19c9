"""The charts of a report: one metric each, with a picture per kind of runs: its curve, its band, its evaluations.

The learning curve of a comparison is one picture of all kinds.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .collect import Kind
from .history import Series
from .metrics import METRICS, Metric
from .statistics import spread

BOLD, THIN = 40, 400  # points of the curve of a single run, and of the thin line behind it
NOISE = 1e-6  # rounding makes a KL of 0 so large; charts with nothing above it are left out
STYLES = ("-", "--", ":")  # of ten kinds each, for which there are colors
LINE, OTHERS, SOFT, GRID = "#0b6e99", "#b4bac2", "#68717d", "#dfe3e8"  # the page inverts them in the dark


def write_curve(kinds: Sequence[Kind], stem: Path) -> list[Path]:
    """Write the learning curves of all kinds of runs in one picture, as SVG and PNG; return the files.

    Success and, unless it is the same, the reward of the sampled episodes have a panel each, over episodes (text) or
    steps (control). Of several runs: the interquartile mean, and a band from the worst to the best.

    Args:
        kinds: of the runs.
        stem: path of the files without their ending.

    Returns:
        None of them if nothing was logged.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    axis = _axis_of(kinds)
    panels = list(_bands_of(kinds, METRICS[:2], axis))
    if not panels:
        return []
    figure, side = Figure(figsize=(5 * len(panels) + 1.5, 3.6), layout="constrained"), len(panels)
    plots: Any = figure.subplots(1, side, squeeze=False)[0]
    for axes, (metric, bands) in zip(plots, panels, strict=True):
        for number, (kind, (x, y, low, high)) in enumerate(bands.items()):
            style = {"color": f"C{number % 10}", "linestyle": STYLES[number // 10 % len(STYLES)]}
            axes.plot(x, y, linewidth=1.4, label=kind.label.replace("$", r"\$"), **style)
            if len(kind.runs) > 1:
                axes.fill_between(x, low, high, color=style["color"], alpha=0.12, linewidth=0)
        axes.set(title=metric.title, xlabel="episodes" if axis == "time/episodes" else "steps")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(color=GRID, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = max((axes.get_legend_handles_labels() for axes in plots), key=lambda legend: len(legend[1]))
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize="small")
    files = [stem.with_suffix(ending) for ending in (".svg", ".png")]
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": stem.name}):  # equal runs, equal files
        figure.savefig(files[0], metadata={"Date": None})
        figure.savefig(files[1], dpi=200)
    return files


def charts_of(kinds: Sequence[Kind]) -> list[dict[str, Any]]:
    """Return the charts of all metrics in the log, without curves that are zero up to rounding or like another chart's.

    Returns:
        Of each `title` and `note` of the metric, and `pictures`: the label of a kind, the last value of its curve, and
        the picture as the address of an image.
    """
    runs = [run for kind in kinds for run in kind.runs]
    axis = "time/iterations" if len(kinds) == 1 else _axis_of(kinds)  # updates of two kinds may differ in size
    parts = dict.fromkeys(name for run in runs for name in run.columns if "/parts/" in name)
    of_parts = [Metric(name, f"Part of the reward: {name.split('/parts/')[1]}", "Mean of an update.") for name in parts]
    grouped = any((run["rollout/group_size_min"].values > 1).any() for run in runs)
    charts = []
    shown = [metric for metric in [*METRICS, *of_parts] if grouped or not metric.of_groups]
    for metric, bands in _bands_of(kinds, shown, axis):
        pictures = [(kind.label, band[1][-1], _picture(kind, metric, axis, bands)) for kind, band in bands.items()]
        charts.append({"title": metric.title, "note": metric.note, "pictures": pictures})
    return charts


def _axis_of(kinds: Sequence[Kind]) -> str:
    """Return the column by which kinds of runs are compared."""
    return "time/episodes" if kinds[0].runs[0].is_text else "time/total_timesteps"


def _bands_of(
    kinds: Sequence[Kind], metrics: Sequence[Metric], axis: str
) -> Iterator[tuple[Metric, dict[Kind, np.ndarray]]]:
    """Yield each metric that is more than rounding, and not the same as one before, with the `_band` of each kind."""
    drawn = set[bytes]()
    for metric in metrics:
        bands = {kind: band for kind in kinds if (band := _band(kind, metric, axis)) is not None}
        figures = b"".join(band[1].tobytes() for band in bands.values())
        if any((abs(band[1]) > NOISE).any() for band in bands.values()) and figures not in drawn:
            drawn.add(figures)
            yield metric, bands


def _band(kind: Kind, metric: Metric, axis: str) -> np.ndarray | None:
    """Return x, the curve of a kind and the lower and upper end of its band [4, n]; None if nothing was logged."""
    runs = [run for run in kind.runs if run.curve(axis, metric.column).size]
    curves = [run.curve(axis, metric.column) * [[1], [metric.sign]] for run in runs]
    if len(runs) != 1:
        return spread(curves) if runs else None
    mean, std = Series(*curves[0]).smooth(BOLD), Series(*runs[0].curve(axis, metric.spread)).smooth(BOLD)
    wide = np.interp(mean.updates, std.updates, std.values) if len(std) else 0.0
    return np.stack([mean.updates, mean.values, mean.values - wide, mean.values + wide])


def _picture(kind: Kind, metric: Metric, axis: str, bands: Mapping[Kind, np.ndarray]) -> str:
    """Return the curve of a kind with its evaluations and its last value, the others behind it, as a `data:` address.

    Args:
        kind: one of those in `bands`.
        metric: of the chart.
        axis: column of x.
        bands: of all kinds, see `_band`.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, MaxNLocator

    figure, file = Figure(figsize=(4.1, 2.35), layout="constrained"), io.BytesIO()
    axes: Any = figure.add_subplot()
    for other, (x, y, low, high) in bands.items():
        own = other is kind  # what is invisible of the others counts for the limits, so that all pictures have the same
        axes.plot(x, y, color=LINE if own else OTHERS, linewidth=1.6 if own else 0.8, zorder=2 + own)
        axes.fill_between(x, low, high, color=LINE, alpha=0.18, linewidth=0, visible=own)
        for run in other.runs:
            axes.plot(*run.curve(axis, metric.held_out), "o", color=LINE, markersize=4, visible=own)
    if len(kind.runs) == 1:
        raw = Series(*kind.runs[0].curve(axis, metric.column)).smooth(THIN)
        axes.plot(raw.updates, metric.sign * raw.values, color=LINE, linewidth=0.7, alpha=0.4)
    last = bands[kind][1][-1]
    axes.annotate(f"{last:.3g}", (1.02, last), xycoords=axes.get_yaxis_transform(), va="center", color=LINE)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.tick_params(length=0, labelsize=8, labelcolor=SOFT)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(file, format="svg", transparent=True)
    return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}"
