"""The charts of a report: one metric each, with a picture per kind of runs: its curve, its band, its evaluations.

METRICS are shown in this order. plot.svg draws pictures, from places and texts in them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .collect import Kind
from .history import Series
from .statistics import spread

BOLD, THIN = 40, 400  # points of the curve of a single run, and of the thin line behind it
NOISE = 1e-6  # rounding makes a KL of 0 so large; charts with nothing above it are left out
TICKS = 4  # about, on an axis


@dataclass(frozen=True)
class Metric:
    """The content of a chart.

    Attributes:
        column: of progress.csv.
        title: of the chart.
        note: what it is and how to read it, in one sentence.
        held_out: column of the evaluations, drawn as dots.
        spread: column with the standard deviation over an update's episodes.
        sign: -1 for columns that are kept negative.
        of_groups: whether it says nothing about groups of one episode.
    """

    column: str
    title: str
    note: str
    held_out: str = ""
    spread: str = ""
    sign: int = 1
    of_groups: bool = False


METRICS = (
    Metric("rollout/success_rate", "Success", "Share of the sampled episodes that were right. Dots: held-out problems, "
           "greedy.", held_out="eval/success_rate"),
    Metric("rollout/ep_rew_mean", "Reward", "Mean over the episodes of an update. Dots: evaluations.",
           held_out="eval/mean_reward", spread="rollout/reward_std"),
    Metric("rollout/ep_len_mean", "Length", "Steps per episode; for text, tokens. Dots: evaluations.",
           held_out="eval/mean_ep_length"),
    Metric("train/entropy_loss", "Entropy", "Nats per step. It falls as the policy becomes certain; at 0 it explores "
           "nothing.", sign=-1),
    Metric("train/kl_ref", "KL to the reference", "Nats per step: how far the policy has moved."),
    Metric("train/kl_teacher", "KL to the teacher", "Nats per step: what distillation brings down."),
    Metric("train/taught_frac", "Taught", "Share of steps in episodes for which the teacher has a hint."),
    Metric("train/reply_loss", "Loss on replies", "Nats per token of the environment's replies."),
    Metric("rollout/frac_reward_zero_std", "Groups without a signal", "Share of groups whose rewards are all equal.",
           of_groups=True),
    Metric("rollout/truncated_frac", "Cut off", "Share of episodes that ran out of steps."),
    Metric("rollout/failed_frac", "Without a verdict", "Share of episodes on which the verifier failed."),
)  # fmt: skip


def charts_of(kinds: Sequence[Kind]) -> list[dict[str, Any]]:
    """Return the charts of all metrics in the log, without curves that are zero up to rounding or like another chart's.

    Returns:
        Of each `title` and `note` of the metric, and `pictures`: the label of a kind, and what plot.svg draws.
    """
    runs = [run for kind in kinds for run in kind.runs]
    axis = "time/iterations"
    if len(kinds) > 1:  # whose updates may differ in size
        axis = "time/episodes" if runs[0].is_text else "time/total_timesteps"
    parts = dict.fromkeys(name for run in runs for name in run.columns if "/parts/" in name)
    of_parts = [Metric(name, f"Part of the reward: {name.split('/parts/')[1]}", "Mean of an update.") for name in parts]
    grouped = any((run["rollout/group_size_min"].values > 1).any() for run in runs)
    shown = [metric for metric in [*METRICS, *of_parts] if grouped or not metric.of_groups]
    return [
        {
            "title": metric.title,
            "note": metric.note,
            "pictures": [(kind.label, _picture(metric, bands, axis, kind)) for kind in bands],
        }
        for metric, bands in _bands_of(kinds, shown, axis)
    ]


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


def _picture(metric: Metric, bands: Mapping[Kind, np.ndarray], axis: str, own: Kind) -> dict[str, Any]:
    """Return the facts of plot.svg for a metric: a kind with its evaluations and its last value, the others behind it.

    Args:
        metric: of the picture.
        bands: of all kinds, see `_band`.
        axis: column of x.
        own: one of the kinds.
    """
    dots = {kind: np.hstack([run.curve(axis, metric.held_out) for run in kind.runs]) for kind in bands}
    raw = {kind: Series(*kind.runs[0].curve(axis, metric.column)).smooth(THIN) for kind in bands if len(kind.runs) == 1}
    thin = {kind: np.stack([each.updates, metric.sign * each.values]) for kind, each in raw.items()}
    curves = [_curve("other", band) for kind, band in bands.items() if kind is not own]
    curves += [_curve("thin", thin[own])] if own in thin else []
    curves.append(_curve("own", bands[own], with_band=True))
    outlines = [band[[0, row]] for band in bands.values() for row in (2, 3)]
    frame = _frame([*outlines, *dots.values(), *thin.values()])  # of all kinds: their pictures have one scale
    return frame | {"curves": curves, "dots": dots[own].T.tolist(), "last": bands[own][1][-1]}


def _curve(style: str, curve: np.ndarray, with_band: bool = False) -> dict[str, str]:
    """Return the points of the line, and of the band, of a curve [2, n] or of one with a band [4, n]."""
    x, mean = curve[:2]
    band = _points(np.hstack([x, x[::-1]]), np.hstack([curve[2], curve[3][::-1]])) if with_band else ""
    return {"style": style, "line": _points(x, mean), "band": band}


def _frame(figures: Sequence[np.ndarray]) -> dict[str, Any]:
    """Return the `limits` of a picture that holds these x and y [2, n], and the `rows` and `columns` of its grid."""
    (left, low), (right, high) = (end(np.hstack(figures), axis=1) for end in (np.min, np.max))
    rows = _ticks(low, high)
    columns = [(value, _short(value)) for value in _ticks(left, right) if left <= value <= right]
    return {"limits": [left, right, rows[0], rows[-1]], "rows": rows, "columns": columns}


def _points(x: np.ndarray, y: np.ndarray) -> str:
    return " ".join(f"{left:.7g},{up:.5g}" for left, up in zip(x, y, strict=True))


def _ticks(low: float, high: float) -> np.ndarray:
    """Return round figures at equal distances, about `TICKS`, from at most low to at least high."""
    smallest = 4 * np.spacing(max(abs(low), abs(high)))  # that floats of this size can tell
    least = max((high - low) / TICKS or 1.0, smallest)
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
    return step * np.arange(math.floor(low / step), max(math.ceil(high / step), math.floor(low / step) + 1) + 1)


def _short(value: float) -> str:
    """Return a count in short, such as "1.5k"."""
    power = max(min(int(math.log10(abs(value) or 1)) // 3, 3), 0)
    return f"{value / 1000**power:g}{('', 'k', 'M', 'G')[power]}"
