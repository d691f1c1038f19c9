"""Draw docs/picture-light.svg and -dark.svg: what a real model answered before and after, and how it learned.

make real && python docs/make_picture.py runs/real
python docs/make_picture.py    # draws again what was read last, which is in docs/picture.json
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

DOCS = Path(__file__).resolve().parent
COLORS = {
    "light": {"text": "#1f2328", "soft": "#656d76", "grid": "#d0d7de", "line": "#0969da"},
    "dark": {"text": "#e6edf3", "soft": "#9198a1", "grid": "#3d444d", "line": "#4493f8"},
}
RIGHT = {"light": {True: "#1a7f37", False: "#cf222e"}, "dark": {True: "#3fb950", False: "#f85149"}}
SHOWN, LONGEST = 4, 27  # answers; characters of one
AROUND = 3  # neighbours on each side, in the running mean of the curve


def read(folder: Path) -> dict[str, Any]:
    """Return the picture's part of a run: held-out answers before and after, and the curve of its training."""
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    with (folder / "progress.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["rollout/success_rate"]]
    return {
        "minutes": round(result["seconds"] / 60, 1),
        "before": result["initial_eval"]["success_rate"],
        "after": result["eval"]["success_rate"],
        "episodes": [int(row["time/episodes"]) for row in rows],
        "success": [round(float(row["rollout/success_rate"]), 4) for row in rows],
        "answers": answers(folder / "samples.jsonl"),
    }


def answers(path: Path) -> list[dict[str, Any]]:
    """Return the first prompts, each with what was answered to it before and after training, and its success."""
    with path.open(encoding="utf-8") as file:
        rows = [row for row in map(json.loads, file) if row["kind"] == "evaluation"]
    told: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["when"] in ("before", "after"):
            told.setdefault(row["prompt"], {})[row["when"]] = {"text": row["completion"], "right": row["success"]}
    return [{"prompt": prompt} | both for prompt, both in told.items() if len(both) == 2][:SHOWN]


def save(name: str, height: float, draw: Callable[[Figure, str], None]) -> None:
    """Write docs/NAME-light.svg and docs/NAME-dark.svg.

    Args:
        name: of the picture.
        height: in inches; pictures are as wide as a page.
        draw: takes a figure and "light" or "dark".
    """
    rcParams["svg.hashsalt"] = "rlenv"  # the same data give the same file
    for mode in COLORS:
        figure = Figure(figsize=(8.2, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure, mode)
        path = DOCS / f"{name}-{mode}.svg"
        figure.savefig(path, transparent=True, metadata={"Date": None})
        lines = path.read_text("utf-8").splitlines()
        path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


def before_and_after(figure: Figure, data: dict[str, Any], mode: str) -> None:
    """Draw the answers on the left and the curve on the right."""
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    draw_answers(left, data, COLORS[mode], RIGHT[mode])
    draw_curve(right, data, COLORS[mode])


def draw_answers(axes: Axes, data: dict[str, Any], color: dict[str, str], right: dict[bool, str]) -> None:
    """Write each prompt, with the answer before on the left and the answer after on the right."""
    axes.set_axis_off()
    axes.set_xlim(0, 10)
    axes.set_ylim(0, SHOWN)
    axes.set_title("held-out questions, before and after", color=color["text"], fontsize=11)
    for row, told in enumerate(data["answers"]):
        top = SHOWN - row - 0.2
        axes.text(0, top, told["prompt"], color=color["soft"], fontsize=9.5, va="center")
        for when, x in (("before", 0.3), ("after", 6.0)):
            place = {"color": right[told[when]["right"]], "fontsize": 10, "va": "center"}
            axes.text(x, top - 0.38, shortened(told[when]["text"]), family="monospace", **place)


def shortened(text: str) -> str:
    """Return a completion in one line that fits."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 2].rstrip() + " \N{HORIZONTAL ELLIPSIS}"


def draw_curve(axes: Axes, data: dict[str, Any], color: dict[str, str]) -> None:
    """Draw the success of the sampled answers and its running mean, and that of the greedy ones before and after."""
    last = data["episodes"][-1]
    axes.plot(data["episodes"], data["success"], color=color["line"], linewidth=0.8, alpha=0.35)
    axes.plot(data["episodes"], smoothed(data["success"]), color=color["line"], linewidth=1.8)
    for where, name, align in ((0, "before", "left"), (last, "after", "right")):
        axes.plot([where], [data[name]], "o", color=color["text"], markersize=6, clip_on=False, zorder=3)
        beside = -17 if where and smoothed(data["success"])[-1] > data[name] else 8  # away from the curve
        place = (8 if where == 0 else -4, beside), {"textcoords": "offset points", "ha": align, "fontsize": 10.5}
        axes.annotate(f"{100 * data[name]:.0f} %", (where, data[name]), place[0], color=color["text"], **place[1])
    axes.set_ylim(0, 1)
    axes.set_xticks([0, last], ["0", f"{last:,} answers"])
    axes.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    axes.get_xticklabels()[-1].set_ha("right")
    axes.set_title(f"right answers, {data['minutes']:g} min", color=color["text"], fontsize=11)
    plain(axes, color)


def plain(axes: Axes, color: dict[str, str]) -> None:
    """Give axes a thin grid in place of a frame."""
    axes.grid(color=color["grid"], linewidth=0.6)
    axes.tick_params(colors=color["soft"], labelsize=10, length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_facecolor("none")


def smoothed(values: list[float]) -> list[float]:
    """Return the mean of each value and its neighbours."""
    return [fmean(values[max(at - AROUND, 0) : at + AROUND + 1]) for at in range(len(values))]


def main(arguments: list[str]) -> None:
    """Read the run that is named, if one is, and draw."""
    store = DOCS / "picture.json"
    if arguments:
        store.write_text(json.dumps(read(Path(arguments[0]))) + "\n", encoding="utf-8")
    data = json.loads(store.read_text(encoding="utf-8"))
    save("picture", 3.1, lambda figure, mode: before_and_after(figure, data, mode))


if __name__ == "__main__":
    main(sys.argv[1:])
