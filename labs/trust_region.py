"""What holds a policy back when a step is too large?

docs/labs.md describes the setup and what follows for choosing an algorithm.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from rlenv.agents import GRPO
from rlenv.verifiers import Problem, Verdict, Verifier

from .base import Check, Finding, Panel, mean_of
from .training import make_agent, seeds_of, train, warm_model

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
    "no brake, 20x": {**NO_NORM, **NO_RATIO, "learning_rate": FAR_TOO_LARGE},
    "ratio 0.2, norm 1, 20x": {"clip_range": 0.2, "learning_rate": FAR_TOO_LARGE},
}
CLIPPED = ("ratio 0.2", "ratio 0.2, norm 1")
CLAIM = (
    "With several passes over a rollout, clipping the ratio shortens updates and saves success. Clipping the norm "
    "does not. Neither saves a rate that is far too large."
)


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
    rows = []
    for update, (_, figures) in enumerate(train(agent, UPDATES)):
        rows.append({
            "seed": seed, "arm": name, "update": update, "success": figures["rollout/success_rate"],
            "kl": figures["train/approx_kl"],
        })  # fmt: skip
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return of each arm the KL of an update, and the success of the rollouts after the first update."""
    later = [row for row in rows if row["update"] > 0]
    return {
        name: {"success": mean_of(later, "success", arm=name), "kl": mean_of(rows, "kl", arm=name)} for name in ARMS
    }


def checks_of(arms: dict[str, dict[str, float]]) -> list[Check]:
    """Return the checks of the claim against the summary of the arms."""

    def mean(column: str, *names: str) -> float:
        return float(np.mean([arms[name][column] for name in names]))

    loose, free, normed = ("no brake", "norm 1"), ("no brake", "ratio 0.2"), ("norm 1", "ratio 0.2, norm 1")
    both, far = (arms[name]["success"] for name in ("ratio 0.2, norm 1", "ratio 0.2, norm 1, 20x"))
    return [
        Check("KL, ratio clipped; below 0.95 of that without", mean("kl", *CLIPPED), high=0.95 * mean("kl", *loose)),
        Check("success, ratio clipped; above that without", mean("success", *CLIPPED), low=mean("success", *loose)),
        Check("KL, norm clipped; above 0.67 of that without", mean("kl", *normed), low=0.67 * mean("kl", *free)),
        Check("success, both clipped, at 20 times the rate; lower by 0.05", far, high=both - 0.05),
    ]


def run(seed: int) -> Finding:
    """Train every arm from several starts."""
    rows = []
    for own in seeds_of(seed, STARTS):
        model = warm_model(Larger(), own, WARM_STEPS, examples=1024)
        rows += [row for name in ARMS for row in train_arm(name, model, own)]
    arms = summary(rows)
    figures = {f"{name}, {arm}": round(own[name], 4) for arm, own in arms.items() for name in own}
    panels = [
        Panel(title, {title: (list(arms), [arm[key] for arm in arms.values()])})
        for title, key in (("KL of an update (nats)", "kl"), ("success", "success"))
    ]
    return Finding(CLAIM, checks_of(arms), rows, panels, figures)
