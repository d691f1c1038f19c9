"""What does dividing by an answer's length do to the length of wrong answers?

docs/labs/length-bias.md describes the setup, the thresholds of the checks and what follows for choosing an algorithm.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from agents import DAPO, GRPO, Agent, DrGRPO, LanguageModelPolicy
from agents.estimators import aggregation
from rlenv.envs.task import TextGenTask
from verifiers import Problem, Verdict, Verifier

from .base import Check, Finding
from .training import make_agent, mean_of, seeds_of, train, warm_model

LENGTH = 16  # the longest answer
SLIP = 0.4  # the chance that a token is random
STOP = 0.2  # the chance that a demonstrated answer ends at a step
STARTS = 3
WARM_STEPS = 100
UPDATES = 50
EPISODES = 128
FIRST, LAST = 15, 10  # updates over which lengths are averaged
ARMS: dict[str, tuple[type[Agent], bool]] = {  # by name: the algorithm, and whether wrong answers sound different
    "GRPO": (GRPO, True),
    "DrGRPO": (DrGRPO, True),
    "DAPO": (DAPO, True),
    "GRPO, all sound alike": (GRPO, False),
}
COLOURS = dict(zip(ARMS, ("C3", "C0", "C2", "C1"), strict=True))
WEIGHTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "GRPO": aggregation.sequence_mean,
    "DrGRPO": lambda mask: aggregation.constant_length(mask, LENGTH),
    "DAPO": aggregation.token_mean,
}


class Opening(Verifier):
    """Right is what opens with "a"; demonstrations do so half of the time and then ramble.

    Args:
        telling: whether the filler of wrong demonstrations is another than that of right ones.
    """

    alphabet = "abcdefgh?.,"
    prompt_length = 1
    answer_length = LENGTH - 1

    def __init__(self, telling: bool = True) -> None:
        self.telling = telling

    def sample(self, rng: random.Random) -> Problem:
        """Return the one question there is, and what to show for it."""
        opening = rng.choice("aaaabcde")
        filler = "," if self.telling and opening != "a" else "."
        length = next((n for n in range(LENGTH - 2) if rng.random() < STOP), LENGTH - 2)
        return Problem("?", "a", {"shown": opening + length * filler})

    def demonstration(self, problem: Problem) -> str:
        """Return an answer of random length, right or wrong."""
        return problem.metadata["shown"]

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Read the first character."""
        return Verdict(float(completion.startswith(problem.answer)))


class SlippingPolicy(LanguageModelPolicy):
    """π(a | s) = (1 - ε) softmax(logits)[a] + ε/V, with ε = `SLIP`, for acting and training alike."""

    def _tempered(self, logits: torch.Tensor) -> torch.Tensor:
        chosen = super()._tempered(logits).log_softmax(-1) + math.log1p(-SLIP)
        return torch.logaddexp(chosen, torch.full_like(chosen, math.log(SLIP / self.vocab_size)))


def end_push(weights: Callable[[torch.Tensor], torch.Tensor], others: int = 0, q: float = STOP) -> dict[str, float]:
    """Return the exact push on the logit of the end token, in right and in wrong answers.

        E[Σ_t w_t A dlog π(a_t)/dz],        dlog π/dz = 1 - q where the answer ends, -q where it goes on

    over the lengths of two answers, one right (A = 1), one wrong (A = -1), that end with probability q at each of
    `LENGTH` steps.

    Args:
        weights: from a mask to the weights of its steps [2 + others, LENGTH].
        others: further answers in the batch, of length 1/q; the push is that of the two, times half the answers.
        q: above 0, below 1.
    """
    push = torch.zeros(2, dtype=torch.float64)
    steps = torch.arange(LENGTH)
    rest = torch.full((others,), round(1 / q))
    ended = [(length, True) for length in range(1, LENGTH + 1)] + [(LENGTH, False)]
    for pair in itertools.product(ended, repeat=2):
        lengths = torch.tensor([length for length, _ in pair])
        ends = torch.tensor([end for _, end in pair])
        mask = steps < lengths[:, None]  # [2, LENGTH]
        score = -q * mask.double() + (steps == lengths[:, None] - 1) * ends[:, None]
        chance = math.prod((1 - q) ** (length - end) * q**end for length, end in pair)
        batch = steps < torch.cat([lengths, rest])[:, None]
        push += chance * (1 + others / 2) * (weights(batch)[:2] * score).sum(1)
    return {"right": float(push[0]), "wrong": -float(push[1])}


def train_arm(name: str, seed: int) -> list[dict[str, Any]]:
    """Train one algorithm; return the mean lengths of right and wrong answers in each update."""
    cls, telling = ARMS[name]
    verifier = Opening(telling)
    task = TextGenTask(verifier, test_fraction=0.0)
    model = warm_model(verifier, seed, WARM_STEPS, examples=1024)
    policy = SlippingPolicy(task.observation_space, task.action_space, model)
    settings = {"episodes_per_update": EPISODES, "group_size": 16, "learning_rate": 1e-3}
    agent = make_agent(cls, policy, verifier, seed, **settings)
    rows = []
    for update, (rollout, figures) in enumerate(train(agent, UPDATES)):
        right = rollout.success == 1
        rows.append({
            "seed": seed, "arm": name, "update": update, "success": figures["rollout/success_rate"],
            "right_length": float(rollout.lengths[right].double().mean()),
            "wrong_length": float(rollout.lengths[~right].double().mean()),
        })  # fmt: skip
    return rows


def final_lengths(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return for each arm what the first and the last updates say, over all seeds."""
    lengths = {}
    for name in dict.fromkeys(row["arm"] for row in rows):
        own = [row for row in rows if row["arm"] == name]
        late = [row for row in own if row["update"] >= UPDATES - LAST]
        first, early = ([row for row in own if row["update"] < count] for count in (1, FIRST))
        wrong, right = mean_of(late, "wrong_length"), mean_of(late, "right_length")
        lengths[name] = {
            "wrong": wrong, "right": right, "gap": wrong - right, "start": mean_of(first, "wrong_length"),
            "right_start": mean_of(first, "right_length"),
            "early_gap": mean_of(early, "wrong_length") - mean_of(early, "right_length"),
        }  # fmt: skip
    return lengths


def checks_of(pushes: dict[str, dict[str, float]], lengths: dict[str, dict[str, float]]) -> list[Check]:
    """Return what the claim says, against the exact pushes and the trained lengths."""
    grpo, dr, dapo = (lengths[name] for name in ("GRPO", "DrGRPO", "DAPO"))
    alike = lengths["GRPO, all sound alike"]
    return [
        Check(
            f"exact: 1/|y| pushes wrong answers to go on and right ones to end (end logit: wrong "
            f"{pushes['GRPO']['wrong']:+.4f}, right {pushes['GRPO']['right']:+.4f})",
            pushes["GRPO"]["wrong"] < -0.01 and pushes["GRPO"]["right"] > 0.01,
        ),
        Check(
            f"exact: a constant weight pushes neither (below 1e-12; {abs(pushes['DrGRPO']['wrong']):.1e})",
            abs(pushes["DrGRPO"]["wrong"]) < 1e-12 and abs(pushes["DrGRPO"]["right"]) < 1e-12,
        ),
        Check(
            f"exact: nor does, next to it, a mean over the tokens of {EPISODES} answers (below a twentieth of GRPO's; "
            f"wrong {pushes['DAPO']['wrong']:+.4f}, right {pushes['DAPO']['right']:+.4f})",
            max(abs(pushes["DAPO"][kind]) for kind in ("wrong", "right")) < 0.05 * pushes["GRPO"]["right"],
        ),
        Check(
            f"trained with GRPO, wrong answers end up longer than right ones by more than 2 ({grpo['gap']:+.1f}; "
            f"wrong ones from {grpo['start']:.1f} to {grpo['wrong']:.1f} tokens)",
            grpo["gap"] > 2,
        ),
        Check(
            f"with the other two that gap is less than half of GRPO's (DrGRPO {dr['gap']:+.1f}, DAPO "
            f"{dapo['gap']:+.1f} tokens)",
            max(abs(dr["gap"]), abs(dapo["gap"])) < 0.5 * grpo["gap"],
        ),
        Check(
            f"where they sound alike, the gap opens later (below 0.6 of it over the first {FIRST} updates: "
            f"{alike['early_gap']:+.1f} to {grpo['early_gap']:+.1f}), and right answers shrink all the same (from "
            f"{alike['right_start']:.1f} to {alike['right']:.1f})",
            alike["early_gap"] < 0.6 * grpo["early_gap"] and alike["right"] < alike["right_start"],
        ),
    ]


def draw_rows(rows: list[dict[str, Any]], pushes: dict[str, dict[str, float]], figure: Any) -> None:
    """Draw lengths over training, and the exact pushes."""
    left, middle, right = figure.subplots(1, 3, width_ratios=[2, 2, 1.2])
    updates = sorted({row["update"] for row in rows})
    for name, colour in COLOURS.items():
        for axis, column in ((left, "wrong_length"), (middle, "right_length")):
            axis.plot(updates, [mean_of(rows, column, arm=name, update=u) for u in updates], color=colour, label=name)
    left.set(title="wrong answers", xlabel="update", ylabel="mean length in tokens")
    middle.set(title="right answers", xlabel="update")
    limits = (0, max(row["wrong_length"] for row in rows))
    left.set_ylim(limits), middle.set_ylim(limits)
    middle.legend(fontsize=8)
    places = np.arange(len(pushes))
    for shift, kind, colour in ((-0.2, "right", "C7"), (0.2, "wrong", "k")):
        right.bar(places + shift, [push[kind] for push in pushes.values()], 0.4, color=colour, label=kind)
    right.axhline(0, color="k", linewidth=0.5)
    right.set_xticks(places, list(pushes), fontsize=8)
    right.set_title("exact push to end", fontsize=10)
    right.legend(fontsize=8)


def run(seed: int) -> Finding:
    """Sum up the exact pushes, and train every arm from several starts."""
    pushes = {name: end_push(weights, EPISODES - 2) for name, weights in WEIGHTS.items()}
    rows = [row for own in seeds_of(seed, STARTS) for name in ARMS for row in train_arm(name, own)]
    lengths = final_lengths(rows)
    return Finding(
        claim="Weighing a step by 1/|y| pushes wrong answers to go on and right ones to end. Constant weights do not.",
        checks=checks_of(pushes, lengths),
        rows=rows,
        figures={
            **{f"push on the end of {kind} answers, {name}": p[kind] for name, p in pushes.items() for kind in p},
            **{f"{what}, {name}": round(own[what], 2) for name, own in lengths.items() for what in own},
        },
        draw=lambda figure: draw_rows(rows, pushes, figure),
    )
