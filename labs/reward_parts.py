"""What does a plain sum of rewards hide, and what does GDPO keep?

docs/labs/reward-parts.md describes the setup and what follows for choosing an algorithm.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from agents import GDPO, GRPO, RLOO, Agent
from agents.exact import World

from .base import Check, Finding
from .enumerable import episodes, make_agent

K = 4
# Four kinds of answers, by what they earn: nothing, tidy, right, both.
RIGHT, TIDY = torch.tensor([0.0, 0, 1, 1]), torch.tensor([0.0, 1, 0, 1])
REFERENCE = (0, 1, 2, 3)  # the other group of the rollout, one answer of each kind
ONE, BOTH = (0, 0, 0, 2), (0, 0, 0, 3)  # one answer of a group is right; it is right and tidy

# Three answers of which none earns both parts: brief ones are paid 10, as by a verifier that counts characters.
START = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)  # of the right one, the brief one, another
PARTS = {"right": torch.tensor([1.0, 0, 0]), "brief": torch.tensor([0.0, 10, 0])}
STEPS, RATE, SHOWN = 400, 0.3, 5
ARMS: dict[str, tuple[type[Agent], dict[str, float]]] = {  # and the weights of the parts
    "RLOO on the sum": (RLOO, {"right": 1.0, "brief": 0.5}),
    "GRPO on the sum": (GRPO, {"right": 1.0, "brief": 0.5}),
    "GDPO, 1 and 0.5": (GDPO, {"right": 1.0, "brief": 0.5}),
    "GDPO, 0.5 and 1": (GDPO, {"right": 0.5, "brief": 1.0}),
}
COLOURS = dict(zip(ARMS, ("C0", "C3", "C2", "C1"), strict=True))
CLAIM = (
    "GRPO on a sum gives answers that earn one part and answers that earn both the same advantage, and the part with "
    "the largest unit decides. GDPO tells them apart, and the weights decide."
)


def run(seed: int) -> Finding:
    """Look at every group, then follow the exact expected gradients; nothing is sampled, so the seed has no effect."""
    told = {cls.__name__: patterns(cls) for cls in (GRPO, GDPO)}
    best = {cls.__name__: [advantages_of(cls, group)[3] for group in (ONE, BOTH)] for cls in (GRPO, GDPO)}
    rows = [row for name in ARMS for row in curve(name)]
    ends = {name: [row for row in rows if row["arm"] == name][-1] for name in ARMS}
    figures = {
        "groups": len(list(itertools.combinations_with_replacement(range(4), K))),
        "told apart": told,
        "advantage of the best answer": best,
        "ends": {name: {part: end[part] for part in PARTS} for name, end in ends.items()},
    }
    return Finding(CLAIM, checks_of(told, best, ends), rows, figures, lambda figure: draw(rows, best, figure))


# What a group looks like to an agent.


def advantages_of(cls: type[Agent], group: Sequence[int]) -> list[float]:
    """Return the advantages of a group of answers, the kinds of which are given, beside the group `REFERENCE`."""
    parts = {"right": RIGHT, "tidy": TIDY}
    return prepared(cls, World(4, 1), parts, dict.fromkeys(parts, 1.0), [*group, *REFERENCE])[:K].tolist()


def patterns(cls: type[Agent]) -> int:
    """Return how many different advantages all groups of K answers have among them; those of equals are the same."""
    every = itertools.combinations_with_replacement(range(4), K)
    return len({tuple(sorted(round(a, 6) for a in advantages_of(cls, group))) for group in every})


def prepared(
    cls: type[Agent], world: World, parts: dict[str, torch.Tensor], weights: dict[str, float], answers: Sequence[int]
) -> torch.Tensor:
    """Return the advantages that a real agent gives to groups of K answers [N].

    Args:
        cls: of the agent.
        world: one token is an answer.
        parts: what each answer earns of each part [V].
        weights: of the parts in the sum, which is the reward.
        answers: of the groups, one after the other.
    """
    settings: dict[str, Any] = {"part_weights": weights} if cls is GDPO else {}
    chosen, group = torch.tensor(answers), torch.arange(len(answers)) // K
    agent = make_agent(cls, world, torch.zeros(1, world.tokens), len(answers) // K, **settings)
    earned = {name: part[chosen].double() for name, part in parts.items()}
    total = torch.stack([weights[name] * part for name, part in earned.items()]).sum(0)
    rollout = episodes(agent.policy, world, chosen, total, group)
    rollout = replace(rollout, extras={f"parts/{name}": part for name, part in earned.items()})
    return agent.prepare(rollout).advantages[:, 0]


# Where training goes, by the exact expected gradient of rollouts of two groups.


def curve(name: str) -> list[dict[str, Any]]:
    """Climb along the expected gradient; return a row every `SHOWN` steps."""
    cls, weights = ARMS[name]
    multisets = list(itertools.combinations_with_replacement(range(3), K))
    pairs = list(itertools.product(multisets, repeat=2))
    credit = torch.stack([prepared(cls, World(3, 1), PARTS, weights, [*one, *two]) for one, two in pairs])  # [M, 2K]
    answers = torch.tensor([[*one, *two] for one, two in pairs])  # [M, 2K]
    counts = torch.nn.functional.one_hot(answers, 3).sum(1)  # [M, V]
    orders = torch.tensor([_orders(one) * _orders(two) for one, two in pairs])  # [M]
    pushes = torch.zeros(len(pairs), 3, dtype=torch.float64).scatter_add(1, answers, credit) / (2 * K)  # of log π
    logits, rows = START.log(), []
    for step in range(STEPS + 1):
        pi = logits.softmax(0)
        if step % SHOWN == 0:
            rows.append({"arm": name, "step": step, "right": float(pi[0]), "brief": float(pi[1])})
        push = ((orders * (pi**counts).prod(1))[:, None] * pushes).sum(0)
        logits = logits + RATE * (push - push.sum() * pi)
    return rows


def _orders(group: Sequence[int]) -> float:
    return math.factorial(K) / math.prod(math.factorial(group.count(answer)) for answer in set(group))


# What the claim says.


def checks_of(told: dict[str, int], best: dict[str, list[float]], ends: dict[str, dict[str, Any]]) -> list[Check]:
    """Return what the claim says, against what agents see and where they end."""
    rloo, grpo, by_right, by_brief = (ends[name] for name in ARMS)
    return [
        Check(
            f"GRPO gives the best answer of a group the same advantage for one part and for both (within 0.001; "
            f"{best['GRPO'][0]:.4f}, {best['GRPO'][1]:.4f})",
            abs(best["GRPO"][1] - best["GRPO"][0]) < 0.001,
        ),
        Check(
            f"GDPO gives it above 1.3 times as much for both ({best['GDPO'][0]:.3f}, {best['GDPO'][1]:.3f})",
            best["GDPO"][1] > 1.3 * best["GDPO"][0],
        ),
        Check(
            f"of all groups of {K} answers, GDPO tells more apart than GRPO ({told['GDPO']} to {told['GRPO']})",
            told["GDPO"] > told["GRPO"],
        ),
        Check(
            f"with the weights 1 and 0.5 and parts that pay 1 and 10, RLOO and GRPO on the sum end with the brief "
            f"answer (above 0.9; {rloo['brief']:.3f}, {grpo['brief']:.3f})",
            min(rloo["brief"], grpo["brief"]) > 0.9,
        ),
        Check(
            f"GDPO ends with the part that has the larger weight (above 0.9; right {by_right['right']:.3f} with 1 and "
            f"0.5, brief {by_brief['brief']:.3f} with 0.5 and 1)",
            min(by_right["right"], by_brief["brief"]) > 0.9,
        ),
    ]


def draw(rows: list[dict[str, Any]], best: dict[str, list[float]], figure: Any) -> None:
    """Draw the advantages of the best answer of a group, and where training goes."""
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.6])
    for place, (one, both) in enumerate(best.values()):
        left.bar([place - 0.2, place + 0.2], [one, both], 0.38, color=["C7", "C2"])
    left.set_xticks(range(len(best)), list(best))
    left.set_title("advantage of the best of 4:\nright (grey), right and tidy (green)", fontsize=10)
    for name, colour in COLOURS.items():
        own = [row for row in rows if row["arm"] == name]
        right.plot([row["step"] for row in own], [row["right"] for row in own], color=colour, label=name)
    right.set(title="share of right answers, exact", xlabel="step along the expected gradient", ylim=(-0.02, 1.02))
    right.legend(fontsize=8)
