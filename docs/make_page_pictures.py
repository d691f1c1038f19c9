"""Draw the pictures in docs/pictures: what the pages on curves, the doctor, play and the whole house are about.

python docs/make_page_pictures.py            # all; half a minute of training
python docs/make_page_pictures.py house      # one of them

Each is drawn for the light and for the dark scheme. Curves and terminals are those of real runs with fixed seeds. The
pictures of a report and of TensorBoard are screenshots of `make demo`, which this does not make.
"""

from __future__ import annotations

import html
import os
import subprocess
import sys
import tempfile
from typing import Any

from make_picture import COLORS, DOCS, plain, save
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

MORE = {"light": ("#0969da", "#cf222e", "#9a6700"), "dark": ("#4493f8", "#f85149", "#d29922")}
PANELS = {
    "reward": lambda curves: curves["rollout/ep_rew_mean"],
    "equal groups": lambda curves: curves["rollout/frac_reward_zero_std"],
    "entropy, nats per token": lambda curves: -curves["train/entropy_loss"],
}


def curves() -> None:
    """Train the three runs of docs/tutorials/reading-the-curves.md and draw their curves."""
    from agents import RLOO

    def echo(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        return [text.count(prompt[0]) / 8 for prompt, text in zip(prompts, completions, strict=True)]

    def never(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        return [float(text == "wxyzwxyz") for text in completions]

    def train(reward: Any, rate: float) -> list[dict[str, float]]:
        world = {"verifier": reward, "problems": ["w>", "x>", "y>", "z>"], "test_fraction": 0.0, "max_new_tokens": 8}
        settings = {"learning_rate": rate, "group_size": 8, "episodes_per_update": 64, "seed": 0, "device": "cpu"}
        agent = RLOO("tiny", "rlenv:TextGen-v0", env_kwargs=world, **settings)
        return [curves for _, curves in agent.updates(total_episodes=64 * 80)]

    runs = {"good settings": train(echo, 2e-3), "too large a step": train(echo, 3e-2), "no reward": train(never, 2e-3)}

    def draw(figure: Figure, mode: str) -> None:
        color = COLORS[mode]
        panels = figure.subplots(1, len(PANELS))
        for axes, (title, of) in zip(panels, PANELS.items(), strict=True):
            for line, (name, rows) in zip(MORE[mode], runs.items(), strict=True):
                axes.plot(range(1, len(rows) + 1), [of(row) for row in rows], color=line, linewidth=1.6, label=name)
            axes.set_title(title, color=color["text"], fontsize=11)
            axes.set_ylim(0, None if "nats" in title else 1.03)
            axes.set_xticks([1, 80], ["1", "update 80"])
            axes.get_xticklabels()[-1].set_ha("right")
            plain(axes, color)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False,
                      labelcolor=color["text"])  # fmt: skip

    save("pictures/curves", 2.9, draw)


def house() -> None:
    """Draw the parts of the library and what flows between them."""
    boxes = {  # name: (left, bottom, what it is)
        "agent": (0.2, 3.0, "advantages, loss, optimizer\nagents/algorithms"),
        "collector": (3.7, 3.0, "plays episodes, makes rollouts\nagents/rollouts"),
        "policy": (0.2, 0.6, "the only copy of the model\nagents/policies"),
        "environment": (7.2, 3.0, "an action is a token\nrlenv/envs"),
        "verifier": (7.2, 0.6, "problems, verdicts, replies\nverifiers"),
    }
    flows = [  # from, to, what flows
        ((7.15, 3.9), (6.15, 3.9), "observations"), ((6.15, 3.4), (7.15, 3.4), "tokens"),
        ((3.65, 3.65), (2.65, 3.65), "rollouts"), ((1.2, 2.95), (1.2, 1.85), "weights"),
        ((3.9, 2.95), (2.2, 1.85), "contexts"), ((2.65, 1.3), (5.2, 2.95), "actions"),
        ((8.1, 2.95), (8.1, 1.85), "answers"), ((9.0, 1.8), (9.0, 2.9), "problems,\nrewards"),
    ]  # fmt: skip
    above = (0.0, 0.16, "center")
    beside = {"observations": above, "rollouts": above, "tokens": above, "contexts": (-0.15, 0.1, "right")}

    def draw(figure: Figure, mode: str) -> None:
        color = COLORS[mode]
        axes = figure.subplots()
        axes.set_axis_off()
        axes.set_xlim(0, 10)
        axes.set_ylim(0.4, 4.6)
        for name, (left, bottom, what) in boxes.items():
            axes.add_patch(
                FancyBboxPatch((left, bottom), 2.4, 1.2, boxstyle="round,pad=0.02", fill=False, ec=color["line"])
            )
            axes.text(left + 1.2, bottom + 0.88, name, color=color["text"], fontsize=12, ha="center", weight="bold")
            axes.text(left + 1.2, bottom + 0.14, what, color=color["soft"], fontsize=8.5, ha="center")
        for start, end, what in flows:
            axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": color["soft"]})
            x, y, align = beside.get(what, (0.1, 0.0, "left"))
            middle = (start[0] + end[0]) / 2 + x, (start[1] + end[1]) / 2 + y
            axes.text(*middle, what, color=color["text"], fontsize=9, ha=align, va="center")

    save("pictures/house", 3.6, draw)


def rlenv(*command: str, folder: str) -> str:
    """Return what a command of rlenv prints in a folder."""
    environ = os.environ | {"COLUMNS": "96", "NO_COLOR": "1"}
    words = [sys.executable, "-m", "_rlenv_scripts", *command]
    return subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True, env=environ).stdout


def terminal(name: str, *command: str, folder: str) -> None:
    """Write what a command of rlenv prints as a picture of a terminal."""
    shown = [f"$ rlenv {' '.join(command)}", *rlenv(*command, folder=folder).splitlines()]
    width, height = 30 + 8 * max(map(len, shown)), 22 + 18 * len(shown)
    for mode, color in COLORS.items():
        texts = "\n".join(
            f'<text x="14" y="{26 + 18 * row}" xml:space="preserve">{html.escape(line)}</text>'
            for row, line in enumerate(shown)
        )
        (DOCS / "pictures" / f"{name}-{mode}.svg").write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="monospace" '
            f'font-size="13" fill="{color["text"]}">\n<rect x="1" y="1" width="{width - 2}" height="{height - 2}" '
            f'rx="8" fill="none" stroke="{color["grid"]}"/>\n{texts}\n</svg>\n',
            encoding="utf-8",
        )


def doctor() -> None:
    """Train a run with a learning rate a hundred times too large, and show what the doctor says."""
    sick = "--sft-steps 150 --episodes 4096 --learning-rate 0.03 --seed 0 --device cpu --log-dir runs/sick --no-report"
    with tempfile.TemporaryDirectory() as folder:
        rlenv("train", *sick.split(), folder=folder)
        terminal("doctor", "doctor", "runs/sick", folder=folder)
        terminal("play", "play", "runs/sick", "--watch", "--episodes", "1", folder=folder)


PICTURES = {"curves": curves, "house": house, "doctor": doctor}

if __name__ == "__main__":
    for each in sys.argv[1:] or PICTURES:
        PICTURES[each]()
