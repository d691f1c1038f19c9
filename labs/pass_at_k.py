"""What do RLOO, GRPO, MaxRL and PKPO optimize, and what becomes of pass@8?

docs/labs.md describes the setup and what follows for choosing an algorithm.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from rlenv.agents import GRPO, PKPO, RLOO, Agent, MaxRL
from rlenv.agents.exact import World, episodes

from .base import Check, Finding, Panel, column, where
from .enumerable import make_agent

WORLD = World(tokens=3, steps=1)
START = torch.tensor([0.35, 0.25, 0.4], dtype=torch.float64)  # of the common answer, the rare one, a wrong one
SHARES = torch.tensor([0.75, 0.25], dtype=torch.float64)  # of prompts whose answer is the common one, the rare one
K, BEST_OF = 16, 8
STEPS, RATE = 1000, 1.0  # of the exact curves
SHOWN = 10  # steps between two rows
ARMS: dict[str, tuple[type[Agent], dict[str, Any]]] = {
    "RLOO": (RLOO, {}),
    "GRPO": (GRPO, {}),
    "MaxRL": (MaxRL, {}),
    "PKPO, k = 8": (PKPO, {"k": BEST_OF}),
}
CLAIM = (
    "RLOO and GRPO raise pass@1 and lose pass@8: they end with one answer to every prompt. PKPO finds the largest "
    "pass@8, and MaxRL keeps answers in the shares in which prompts need them."
)


def run(seed: int) -> Finding:
    """Follow each agent's exact expected gradient; nothing is sampled, so the seed has no effect."""
    gaps, rows = objective_gaps(), [row for name in ARMS for row in exact_curve(name)]
    ends = {name: where(rows, arm=name)[-1] for name in ARMS}
    figures = {"gaps": gaps, "ends": ends, "largest pass@8": largest(BEST_OF), "largest pass@1": largest(1)}
    panels = [
        Panel(f"pass@{k}, exact", {name: column(where(rows, arm=name), "step", f"pass@{k}") for name in ARMS}, "step")
        for k in (1, BEST_OF)
    ]
    return Finding(CLAIM, checks_of(gaps, ends), rows, panels, figures)


# Every group there is, with the advantages of the real agents.


def pass_at(k: int, pi: torch.Tensor) -> torch.Tensor:
    """Return the probability that one of k answers is right, over both kinds of prompts, for π [..., V]."""
    return (SHARES * (1 - (1 - pi[..., :2]) ** k)).sum(-1)


def largest(k: int) -> float:
    """Return the largest pass@k of all policies, on a grid; a wrong answer never helps."""
    grid = torch.linspace(0, 1, 10_001, dtype=torch.float64)
    return float(pass_at(k, torch.stack([grid, 1 - grid], 1)).max())


def groups() -> tuple[torch.Tensor, torch.Tensor]:
    """Return how often each answer is in every group of K [M, V], and in how many orders it can be drawn [M]."""
    counts = [each for each in itertools.product(range(K + 1), repeat=WORLD.tokens) if sum(each) == K]
    orders = [math.factorial(K) / math.prod(map(math.factorial, each)) for each in counts]
    return torch.tensor(counts), torch.tensor(orders, dtype=torch.float64)


COUNTS, ORDERS = groups()


def advantages(name: str) -> torch.Tensor:
    """Return the advantage that the agent gives each answer in every group, for both kinds of prompts [2, M, V]."""
    cls, settings = ARMS[name]
    answers = torch.arange(WORLD.tokens).repeat(len(COUNTS)).repeat_interleave(COUNTS.flatten())  # [M * K]
    group = torch.arange(len(COUNTS)).repeat_interleave(K)
    agent = make_agent(cls, WORLD, START.log()[None], len(COUNTS), episodes_per_update=K, **settings)
    found = torch.zeros(2, *COUNTS.shape, dtype=torch.float64)
    for kind in range(2):
        rollout = episodes(agent.policy, WORLD, answers, (answers == kind).double(), group)
        found[kind, group, answers] = agent.prepare(rollout).advantages[:, 0]
    return found


def expected_ascent(credit: torch.Tensor, pi: torch.Tensor) -> torch.Tensor:
    """Return E 1/K Σ_i A_i ∇log π(a_i) over groups of both kinds of prompts, with respect to the logits [V].

    Args:
        credit: advantages [2, M, V].
        pi: of each answer [V].
    """
    chance = ORDERS * (pi**COUNTS).prod(1)  # [M]
    push = (SHARES[:, None, None] * chance[:, None] * COUNTS * credit).sum((0, 1)) / K  # of each log π [V]
    return push - push.sum() * pi


def objective(name: str, pi: torch.Tensor) -> torch.Tensor | None:
    """Return the objective of the agent, from its definition; None for GRPO, which has none."""
    wrong = 1 - pi[:2]
    series = -sum((wrong**k / k for k in range(1, K)), torch.zeros(2))
    return {"RLOO": pass_at(1, pi), "MaxRL": (SHARES * series).sum(), "PKPO, k = 8": pass_at(BEST_OF, pi)}.get(name)


def objective_gaps() -> dict[str, float]:
    """Return how far the agent's expected gradient at the start is from that of its objective."""
    gaps = {}
    for name in ARMS:
        logits = START.log().requires_grad_()
        if (goal := objective(name, logits.softmax(0))) is not None:
            wanted = torch.autograd.grad(goal, logits)[0]
            gaps[name] = float((expected_ascent(advantages(name), START) - wanted).norm() / wanted.norm())
    return gaps


def exact_curve(name: str) -> list[dict[str, Any]]:
    """Climb along the expected gradient; return a row for each of the first steps, then every `SHOWN` steps."""
    credit, logits, rows = advantages(name), START.log(), []
    for step in range(STEPS + 1):
        pi = logits.softmax(0)
        if step < SHOWN or step % SHOWN == 0:
            passes = {f"pass@{k}": float(pass_at(k, pi)) for k in (1, BEST_OF)}
            rows.append({"arm": name, "step": step, "common": float(pi[0]), "rare": float(pi[1]), **passes})
        logits = logits + RATE * expected_ascent(credit, pi)
    return rows


# What the claim says.


def checks_of(gaps: dict[str, float], ends: dict[str, dict[str, float]]) -> list[Check]:
    """Return the checks of the claim against the exact gradients and where the arms end."""
    one, many = float(pass_at(1, START)), float(pass_at(BEST_OF, START))
    pkpo, maxrl = ends["PKPO, k = 8"], ends["MaxRL"]
    return [
        *(
            Check(f"relative difference of {name}'s expected gradient from its objective's", gap, high=1e-10)
            for name, gap in gaps.items()
        ),
        *(Check(f"pass@1 of {name}, at first {one:.3f}", ends[name]["pass@1"], low=0.7) for name in ("RLOO", "GRPO")),
        *(
            Check(f"pass@8 of {name}, at first {many:.3f}", ends[name]["pass@8"], high=0.85)
            for name in ("RLOO", "GRPO")
        ),
        Check("pass@8 of PKPO; within 0.001 of the largest there is", pkpo["pass@8"], low=largest(BEST_OF) - 0.001),
        Check("pass@1 of MaxRL; above the start's", maxrl["pass@1"], low=one),
        Check("pass@8 of MaxRL; above the start's", maxrl["pass@8"], low=many),
        Check("share of common answers of MaxRL, as of the prompts", maxrl["common"], low=0.73, high=0.77),
        Check("share of rare answers of MaxRL", maxrl["rare"], low=0.23, high=0.27),
    ]
