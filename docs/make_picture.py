"""Train the picture's run and draw docs/picture-light.svg and -dark.svg: python docs/make_picture.py [--redraw].

The run is `rlenv train --agent ppo --episodes 120000`. Its figures are in docs/picture.json, from which --redraw draws.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from matplotlib import rcParams
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

DOCS = Path(__file__).resolve().parent
OPTIONS = ["train", "--agent", "ppo", "--episodes", "120000", "--seed", "0", "--json"]
COLORS = {
    "light": {"text": "#1f2328", "soft": "#656d76", "grid": "#d0d7de", "line": "#0969da", "box": "#eaeef2"},
    "dark": {"text": "#e6edf3", "soft": "#9198a1", "grid": "#3d444d", "line": "#4493f8", "box": "#21262d"},
}
GOOD, BAD = "#2da44e", "#cf222e"


def measure(folder: Path) -> dict[str, Any]:
    """Return what the picture shows: one wrong and one right episode with their credit, and the learning curve."""
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    with (folder / "progress.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["rollout/success_rate"] and row["time/episodes"]]
    return {
        "command": "rlenv " + " ".join(OPTIONS[:-1]),
        "before": result["initial_eval"]["success_rate"],
        "after": result["eval"]["success_rate"],
        "episodes": [int(row["time/episodes"]) for row in rows],
        "success": [round(float(row["rollout/success_rate"]), 4) for row in rows],
        "shown": credited_episodes(folder),
    }


def credited_episodes(folder: Path) -> list[dict[str, Any]]:
    """Return a wrong and a right episode of one rollout, each token with its advantage from the trained critic."""
    import rlenv  # noqa: F401 (registers TextGen-v0)
    from agents import PPO

    agent = PPO.load(folder / "checkpoint", device="cpu")
    batch = agent.prepare(agent.collector.collect(agent.policy, agent.episodes_per_update, agent.generator))
    tokenizer = agent.env.unwrapped.task.tokenizer
    episodes = []
    for i in range(len(batch)):
        length, steps = int(batch.observations["length"][i]), int(batch.mask[i].sum())  # of the prompt, of the answer
        tokens = batch.actions[i, :steps].tolist()
        credit = batch.advantages[i, :steps].tolist()
        prompt = tokenizer.decode(batch.observations["tokens"][i, :length].tolist())
        words = ["end" if token == tokenizer.eos_token_id else tokenizer.decode([token]) for token in tokens]
        episodes.append(
            {
                "prompt": prompt,
                "reward": float(batch.rewards[i].sum()),
                "tokens": words,
                "credit": [round(value, 2) for value in credit],
            }
        )
    longest = [episode for episode in episodes if len(episode["tokens"]) == 4 and episode["tokens"][-1] == "end"]

    def contrast(episode: dict[str, Any]) -> float:
        return max(map(abs, episode["credit"])) - abs(episode["credit"][-1])

    return [max((one for one in longest if one["reward"] == reward), key=contrast) for reward in (1, 0)]


def draw(data: dict[str, Any], mode: str) -> None:
    """Write docs/picture-MODE.svg."""
    color = COLORS[mode]
    figure = Figure(figsize=(7.2, 3.3), layout="constrained")
    FigureCanvasSVG(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    left.set_axis_off()
    left.set_xlim(0, 7.4)
    left.set_ylim(0, 4.6)
    left.set_title("every token is an action with its credit", color=color["text"], fontsize=11)
    for episode, bottom in zip(data["shown"], (2.45, 0.25), strict=True):
        place = {"ha": "center", "va": "center", "fontsize": 15, "family": "monospace", "color": color["text"]}
        left.text(1.3, bottom + 0.95, episode["prompt"], **place)
        for column, (token, credit) in enumerate(zip(episode["tokens"], episode["credit"], strict=True)):
            x = 2.75 + 1.2 * column
            shade = (GOOD if credit > 0 else BAD) + f"{int(40 + 160 * min(1, abs(credit) / data_scale(data))):02x}"
            left.add_patch(
                FancyBboxPatch(
                    (x, bottom + 0.5), 1.0, 0.9, boxstyle="round,pad=0,rounding_size=0.12", fc=shade, ec="none"
                )
            )
            left.text(x + 0.5, bottom + 0.95, token, **place | {"fontsize": 11 if token == "end" else 15})
            left.text(x + 0.5, bottom + 0.2, f"{credit:+.2f}", **place | {"fontsize": 10})
        text = f"reward {episode['reward']:g}"
        left.text(2.75, bottom + 1.7, text, color=color["soft"], fontsize=10, va="center")
    left.text(0.2, 0.25 + 0.2, "credit", color=color["soft"], fontsize=10, va="center")
    left.text(0.2, 2.45 + 0.2, "credit", color=color["soft"], fontsize=10, va="center")

    last = data["episodes"][-1]
    right.plot(data["episodes"], data["success"], color=color["line"], linewidth=1.4)
    for where, name, align in ((0, "before", "left"), (last, "after", "right")):
        right.plot([where], [data[name]], "o", color=color["text"], markersize=6, clip_on=False, zorder=3)
        note = f"{name}: {100 * data[name]:.0f} %"
        right.annotate(
            note, (where, data[name]), (8 if where == 0 else -2, -16 if where == 0 else -46),
            textcoords="offset points", ha=align, color=color["text"], fontsize=11,
        )  # fmt: skip
    right.set_ylim(0, 1.05)
    right.set_xticks([0, last / 2, last], ["0", f"{last / 2000:.0f}k", f"{last / 1000:.0f}k episodes"])
    right.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    right.get_xticklabels()[-1].set_ha("right")
    right.set_title("two-digit sums solved", color=color["text"], fontsize=11)
    right.grid(color=color["grid"], linewidth=0.6)
    right.tick_params(colors=color["soft"], labelsize=10, length=0)
    for spine in right.spines.values():
        spine.set_visible(False)
    right.set_facecolor("none")
    path = DOCS / f"picture-{mode}.svg"
    figure.savefig(path, transparent=True, metadata={"Date": None})
    path.write_text("\n".join(line.rstrip() for line in path.read_text("utf-8").splitlines()) + "\n", encoding="utf-8")


def data_scale(data: dict[str, Any]) -> float:
    """Return the largest credit in the picture, which has the strongest color."""
    return max(abs(value) for episode in data["shown"] for value in episode["credit"])


def main(arguments: list[str]) -> None:
    """Train, measure and draw; with --redraw draw what was measured last; with --run FOLDER measure that run."""
    store = DOCS / "picture.json"
    if arguments[:1] == ["--run"]:
        data = measure(Path(arguments[1]))
    elif arguments == ["--redraw"]:
        data = json.loads(store.read_text(encoding="utf-8"))
    else:
        from _rlenv_scripts.main import main as rlenv

        with tempfile.TemporaryDirectory() as folder:
            rlenv([*OPTIONS, "--log-dir", f"{folder}/run"], standalone_mode=False)
            data = measure(Path(folder, "run"))
    store.write_text(json.dumps(data) + "\n", encoding="utf-8")
    rcParams["svg.hashsalt"] = "rlenv"  # the same data give the same file
    for mode in COLORS:
        draw(data, mode)


if __name__ == "__main__":
    main(sys.argv[1:])
