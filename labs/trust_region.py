"""What holds a policy back when a step is too large?

docs/labs/trust-region.md describes the setup, the thresholds of the checks and what follows for choosing an algorithm.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from agents import GRPO, LanguageModelPolicy
from agents.learner.optimizer import PolicyOptimizer
from rlenv.envs.task import TextGenTask
from verifiers import Problem, Verdict, Verifier

from .base import Check, Finding
from .training import make_agent, mean_of, seeds_of, small_model, train, warm_model

STARTS = 8
WARM_STEPS = 40
UPDATES = 15
EPISODES = 64
EPOCHS = 8
RATE = 2e-3  # the default is 3e-4
FAR_TOO_LARGE = 6e-3
NO_NORM, NO_RATIO = {"max_grad_norm": 1e9}, {"clip_range": 0.999}
ARMS: dict[str, dict[str, Any]] = {
    "no brake": {**NO_NORM, **NO_RATIO},
    "norm 1": NO_RATIO,
    "ratio 0.2": {**NO_NORM, "clip_range": 0.2},
    "ratio 0.2, norm 1": {"clip_range": 0.2},
    "ratio 0.2 / 0.28, norm 1": {"clip_range": 0.2, "clip_range_high": 0.28},
    "ratio 0.2 / 0.5, norm 1": {"clip_range": 0.2, "clip_range_high": 0.5},
    "no brake, 20x": {**NO_NORM, **NO_RATIO, "learning_rate": FAR_TOO_LARGE},
    "ratio 0.2, norm 1, 20x": {"clip_range": 0.2, "learning_rate": FAR_TOO_LARGE},
}
CLIPPED = ("ratio 0.2", "ratio 0.2, norm 1", "ratio 0.2 / 0.28, norm 1", "ratio 0.2 / 0.5, norm 1")
CLAIM = (
    "With several passes over a rollout, clipping the ratio shortens updates and saves success. Clipping the norm "
    "does not, but stops a single outlier. Neither saves a rate that is far too large."
)
SHOWN = {  # in the drawing: label and arm
    "no brake": "no brake",
    "norm 1": "norm 1",
    "ratio 0.2": "ratio 0.2",
    "ratio and norm": "ratio 0.2, norm 1",
    "no brake, 20x rate": "no brake, 20x",
    "both, 20x rate": "ratio 0.2, norm 1, 20x",
}
ADAM_SHOWN = {
    "plain": "as they are, unclipped",
    "all x1000": "all x1000, unclipped",
    "one x1000": "one x1000, unclipped",
    "one x1000, cut": "one x1000, clipped",
}
STEPS, OUTLIER, SCALE = 40, 15, 1000.0


class Larger(Verifier):
    """The larger of two digits."""

    alphabet = "0123456789,="
    prompt_length = 4
    answer_length = 1

    def sample(self, rng: random.Random) -> Problem:
        """Return a pair of digits."""
        a, b = rng.randrange(10), rng.randrange(10)
        return Problem(f"{a},{b}=", str(max(a, b)))

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Compare the completion with the answer."""
        return Verdict(float(completion == problem.answer))


def train_arm(name: str, model: Any, seed: int) -> list[dict[str, Any]]:
    """Train with these brakes; return a row for each update."""
    settings = {"episodes_per_update": EPISODES, "num_epochs": EPOCHS, "learning_rate": RATE}
    agent = make_agent(GRPO, model, Larger(), seed, **(settings | ARMS[name]))
    agent.stability_watch.warns = False  # updates that go too far are what is studied here
    rows = []
    for update, (_, figures) in enumerate(train(agent, UPDATES)):
        rows.append({
            "seed": seed, "arm": name, "update": update, "success": figures["rollout/success_rate"],
            "entropy": -figures["train/entropy_loss"], "kl": figures["train/approx_kl"],
            "grad_norm": figures["train/grad_norm"], "clipped": figures["train/clip_fraction"],
        })  # fmt: skip
    return rows


def adam_progress(policy: LanguageModelPolicy, scales: list[float], max_grad_norm: float, seed: int) -> float:
    """Return how far Adam moves the weights along the true direction after step `OUTLIER`, per step and weight.

    Args:
        policy: moved in place.
        scales: of the gradient of each step.
        max_grad_norm: of the agents' own `PolicyOptimizer`.
        seed: of the gradients: a fixed direction and, at each step, noise ten times as large.
    """
    generator = torch.Generator().manual_seed(seed)
    parameters = policy.actor_parameters()
    truth = [torch.randn(p.shape, generator=generator).sign() / 100 for p in parameters]
    optimizer = PolicyOptimizer(policy, 1e-3, "constant", max_grad_norm)
    before: list[torch.Tensor] = []
    for step, scale in enumerate(scales):
        if step == OUTLIER:
            before = [p.detach().clone() for p in parameters]
        for p, direction in zip(parameters, truth, strict=True):
            noise = torch.randn(p.shape, generator=generator) / 10
            p.grad = scale * (direction + noise)
        optimizer.step()
    moved = [(then - p.detach()) * g.sign() for p, then, g in zip(parameters, before, truth, strict=True)]
    return float(sum(m.sum() for m in moved)) / sum(m.numel() for m in moved) / (len(scales) - OUTLIER)


def adam_figures(seed: int) -> dict[str, float]:
    """Return the progress along the true direction, relative to that of gradients left as they are."""
    task = TextGenTask(Larger(), test_fraction=0.0)
    plain, large = [1.0] * STEPS, [SCALE] * STEPS
    outlier = [SCALE if step == OUTLIER else 1.0 for step in range(STEPS)]
    cases = {
        "as they are, unclipped": (plain, 1e9),
        "as they are, clipped": (plain, 1.0),
        "all x1000, unclipped": (large, 1e9),
        "all x1000, clipped": (large, 1.0),
        "one x1000, unclipped": (outlier, 1e9),
        "one x1000, clipped": (outlier, 1.0),
    }
    progress = {}
    for name, (scales, norm) in cases.items():
        policy = LanguageModelPolicy(task.observation_space, task.action_space, small_model(task, seed, width=32))
        progress[name] = adam_progress(policy, scales, norm, seed)
    return {name: figure / progress["as they are, unclipped"] for name, figure in progress.items()}


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return of each arm the KL of an update, and success and entropy in the rollouts after the first update."""
    later = [row for row in rows if row["update"] > 0]
    return {
        name: {
            "success": mean_of(later, "success", arm=name),
            "kl": mean_of(rows, "kl", arm=name),
            "entropy": mean_of(later, "entropy", arm=name),
        }
        for name in dict.fromkeys(row["arm"] for row in rows)
    }


def checks_of(arms: dict[str, dict[str, float]], adam: dict[str, float]) -> list[Check]:
    """Return what the claim says, against the summary of the arms and Adam's progress."""

    def mean(column: str, *names: str) -> float:
        return float(np.mean([arms[name][column] for name in names]))

    loose, free, normed = ("no brake", "norm 1"), ("no brake", "ratio 0.2"), ("norm 1", "ratio 0.2, norm 1")
    both = arms["ratio 0.2, norm 1"]
    higher = [arms[name]["success"] for name in ("ratio 0.2 / 0.28, norm 1", "ratio 0.2 / 0.5, norm 1")]
    far = arms["ratio 0.2, norm 1, 20x"]["success"]
    unmoved = max(
        abs(adam[name] - 1) for name in ("as they are, clipped", "all x1000, unclipped", "all x1000, clipped")
    )
    return [
        Check(
            f"the clipped ratio shortens updates: KL below 0.95 of that without ({mean('kl', *CLIPPED):.3f} to "
            f"{mean('kl', *loose):.3f})",
            mean("kl", *CLIPPED) < 0.95 * mean("kl", *loose),
        ),
        Check(
            f"and success is higher ({mean('success', *CLIPPED):.3f} to {mean('success', *loose):.3f})",
            mean("success", *CLIPPED) > mean("success", *loose),
        ),
        Check(
            f"behind Adam, updates with norm clipping are as long as without: KL above 0.67 of theirs "
            f"({mean('kl', *normed):.3f} to {mean('kl', *free):.3f})",
            mean("kl", *normed) > 0.67 * mean("kl", *free),
        ),
        Check(
            f"Adam's progress stays the same with norm clipping, and with gradients a thousand times larger (within "
            f"0.01; {unmoved:.4f})",
            unmoved < 0.01,
        ),
        Check(
            f"but one gradient a thousand times larger than the others halts it unless clipped (below 0.5 of the "
            f"progress, above 0.9; {adam['one x1000, unclipped']:.2f}, {adam['one x1000, clipped']:.2f})",
            adam["one x1000, unclipped"] < 0.5 and adam["one x1000, clipped"] > 0.9,
        ),
        Check(
            f"more room upwards changes success by less than 0.15 (0.28: {higher[0]:.3f}, 0.5: {higher[1]:.3f}; "
            f"symmetric: {both['success']:.3f})",
            max(abs(success - both["success"]) for success in higher) < 0.15,
        ),
        Check(
            f"at a rate of 20 times the default both brakes fail: success is lower by more than 0.05 ({far:.3f} to "
            f"{both['success']:.3f})",
            far < both["success"] - 0.05,
        ),
    ]


def draw_figures(figures: dict[str, float], figure: Any) -> None:
    """Draw how far an update goes and what success it ends with, by brake; and Adam's progress.

    Args:
        figures: of the finding.
        figure: of matplotlib.
    """
    panels = figure.subplots(1, 3)
    columns = (
        ("KL of an update (nats)", {label: figures[f"kl, {arm}"] for label, arm in SHOWN.items()}),
        ("success", {label: figures[f"success, {arm}"] for label, arm in SHOWN.items()}),
        ("Adam's progress", {label: figures[f"Adam's progress, {case}"] for label, case in ADAM_SHOWN.items()}),
    )
    for axes, (title, bars) in zip(panels, columns, strict=True):
        for place, (label, value) in enumerate(bars.items()):
            clipped, far = "ratio" in label or "cut" in label, "20x" in label
            axes.barh(place, value, color="C7" if far else "C2" if clipped else "C3")
            axes.text(value + 0.02 * max(bars.values()), place, f"{value:.2f}", va="center", fontsize=9)
        axes.set(title=title, xlim=(0, 1.25 * max(bars.values())))
        axes.set_yticks(range(len(bars)), list(bars), fontsize=10)
        axes.invert_yaxis()
    panels[1].set_yticklabels([])


def run(seed: int) -> Finding:
    """Train every arm from several starts, and push gradients through Adam."""
    rows = []
    for own in seeds_of(seed, STARTS):
        model = warm_model(Larger(), own, WARM_STEPS, examples=1024)
        rows += [row for name in ARMS for row in train_arm(name, model, own)]
    arms, adam = summary(rows), adam_figures(seed)
    figures = {
        **{f"{column}, {name}": round(arm[column], 4) for name, arm in arms.items() for column in arm},
        **{f"Adam's progress, {name}": round(figure, 4) for name, figure in adam.items()},
    }
    return Finding(
        claim=CLAIM,
        checks=checks_of(arms, adam),
        rows=rows,
        figures=figures,
        draw=lambda figure: draw_figures(figures, figure),
    )
