"""What do RLOO, GRPO, MaxRL and PKPO optimize, and what becomes of pass@8?

docs/labs/pass-at-k.md describes the setup and what follows for choosing an algorithm.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import torch

from agents import GRPO, PKPO, RLOO, Agent, MaxRL
from agents.exact import TablePolicy, World, WorldEnv

from .base import Check, Finding
from .enumerable import episodes, make_agent
from .training import mean_of, seeds_of

WORLD = World(tokens=3, steps=1)
START = torch.tensor([0.35, 0.25, 0.4], dtype=torch.float64)  # of the common answer, the rare one, a wrong one
SHARES = torch.tensor([0.75, 0.25], dtype=torch.float64)  # of prompts whose answer is the common one, the rare one
K, BEST_OF = 16, 8
STEPS, RATE = 1000, 1.0  # of the exact curves
SHOWN = 10  # steps between two rows
RUNS, UPDATES, LEARNING_RATE = 5, 150, 0.03
ARMS: dict[str, tuple[type[Agent], dict[str, Any]]] = {
    "RLOO": (RLOO, {}),
    "GRPO": (GRPO, {}),
    "MaxRL": (MaxRL, {}),
    "PKPO, k = 8": (PKPO, {"k": BEST_OF}),
}
COLOURS = dict(zip(ARMS, ("C0", "C3", "C4", "C2"), strict=True))
EXACT, SAMPLED = "exact", "sampled"
ROUNDING = 1e-10
CLAIM = (
    "RLOO and GRPO raise pass@1 and lose pass@8: they end with one answer to every prompt. PKPO finds the largest "
    "pass@8, and MaxRL keeps answers in the shares in which prompts need them."
)


class Unseeing(TablePolicy):
    """Answers all prompts alike: it cannot tell which of the two answers a prompt needs."""

    def _log_pi(self, obs: torch.Tensor) -> torch.Tensor:
        return super()._log_pi(torch.zeros_like(obs))


def run(seed: int) -> Finding:
    """Follow each agent's exact expected gradient, then train each from several seeds."""
    gaps = objective_gaps()
    rows = [row for name in ARMS for row in exact_curve(name)]
    rows += [row for name in ARMS for own in seeds_of(seed, RUNS) for row in sampled_curve(name, own)]
    ends = {name: ends_of(rows, name) for name in ARMS}
    figures = {"gaps": gaps, "ends": ends, "largest pass@8": largest(BEST_OF), "largest pass@1": largest(1)}
    return Finding(CLAIM, checks_of(gaps, ends), rows, figures, lambda figure: draw(rows, figure))


# Exact: every group there is, with the advantages of the real agents.


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
    """Return what the agent maximizes, from its definition; None for GRPO, which does not say."""
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
            rows.append(row_of(EXACT, name, 0, step, pi))
        logits = logits + RATE * expected_ascent(credit, pi)
    return rows


def row_of(how: str, name: str, seed: int, step: int, pi: torch.Tensor) -> dict[str, Any]:
    """Return what a policy is like at a step."""
    passes = {f"pass@{k}": float(pass_at(k, pi)) for k in (1, BEST_OF)}
    return {"how": how, "arm": name, "seed": seed, "step": step, "common": float(pi[0]), "rare": float(pi[1]), **passes}


# Sampled: the real agents.


def sampled_curve(name: str, seed: int) -> list[dict[str, Any]]:
    """Train an agent on three prompts that need the common answer and one that needs the rare one."""
    cls, settings = ARMS[name]
    rewards = torch.eye(3, dtype=torch.float64)[[0, 0, 0, 1]][:, None]  # [P, 1, V]
    env = WorldEnv(WORLD, rewards, num_envs=4 * K, group_size=K)
    usual = {"episodes_per_update": 4 * K, "learning_rate": LEARNING_RATE, "seed": seed, "device": "cpu"}
    policy = Unseeing(START.log()[None])
    agent = cls(policy, env, **usual, **settings)
    rows = [row_of(SAMPLED, name, seed, 0, START)]
    for update, _ in enumerate(agent.updates(total_episodes=4 * K * UPDATES), 1):
        if update % SHOWN == 0:
            rows.append(row_of(SAMPLED, name, seed, update, policy.logits.detach()[0, 0].softmax(0)))
    return rows


# What the claim says.


def ends_of(rows: list[dict[str, Any]], name: str) -> dict[str, float]:
    """Return where an arm ends: by the exact curve, and of the sampled runs the mean, the lowest and the highest."""
    exact = [row for row in rows if row["arm"] == name and row["how"] == EXACT][-1]
    last = max(row["step"] for row in rows if row["how"] == SAMPLED)
    own = [row for row in rows if row["arm"] == name and row["how"] == SAMPLED and row["step"] == last]
    ends = {what: exact[what] for what in ("pass@1", "pass@8", "common", "rare")}
    for what in ("pass@1", "pass@8"):
        values = [row[what] for row in own]
        ends |= {
            f"{what}, sampled": float(np.mean(values)),
            f"{what}, least": min(values),
            f"{what}, most": max(values),
        }
    return ends


def checks_of(gaps: dict[str, float], ends: dict[str, dict[str, float]]) -> list[Check]:
    """Return what the claim says, against the exact gradients and where the arms end."""
    one, many = float(pass_at(1, START)), float(pass_at(BEST_OF, START))
    rloo, grpo, maxrl, pkpo = (ends[name] for name in ARMS)
    named = ", ".join(f"{name} {gap:.0e}" for name, gap in gaps.items())
    plain = (rloo, grpo)
    return [
        Check(
            f"exact: the expected gradient is that of pass@1, of log p to order {K - 1}, of pass@{BEST_OF} (within "
            f"1e-10; {named})",
            max(gaps.values()) < ROUNDING,
        ),
        Check(
            f"exact: RLOO and GRPO raise pass@1 from {one:.3f} to above 0.7 (RLOO {rloo['pass@1']:.3f}, GRPO "
            f"{grpo['pass@1']:.3f}) and pass@8 falls from {many:.3f} to below 0.85 ({rloo['pass@8']:.3f}, "
            f"{grpo['pass@8']:.3f})",
            all(end["pass@1"] > 0.7 and end["pass@8"] < 0.85 for end in plain),
        ),
        Check(
            f"exact: PKPO ends at the largest pass@8 there is (within 0.001; {pkpo['pass@8']:.4f} to "
            f"{largest(BEST_OF):.4f}), with a pass@1 of {pkpo['pass@1']:.3f}",
            abs(pkpo["pass@8"] - largest(BEST_OF)) < 0.001,
        ),
        Check(
            f"exact: MaxRL raises both, and answers in the shares of the prompts (0.75 and 0.25, within 0.02; "
            f"{maxrl['common']:.3f} and {maxrl['rare']:.3f}): pass@1 {maxrl['pass@1']:.3f}, "
            f"pass@8 {maxrl['pass@8']:.3f}",
            maxrl["pass@1"] > one
            and maxrl["pass@8"] > many
            and max(abs(maxrl["common"] - 0.75), abs(maxrl["rare"] - 0.25)) < 0.02,
        ),
        Check(
            f"sampled: in every run pass@8 falls with RLOO and GRPO (highest {rloo['pass@8, most']:.3f}, "
            f"{grpo['pass@8, most']:.3f}) and rises with MaxRL and PKPO (lowest {maxrl['pass@8, least']:.3f}, "
            f"{pkpo['pass@8, least']:.3f})",
            all(end["pass@8, most"] < many for end in plain)
            and all(end["pass@8, least"] > many for end in (maxrl, pkpo)),
        ),
        Check(
            f"sampled: in every run pass@1 rises with all of them (lowest "
            f"{', '.join(format(end['pass@1, least'], '.3f') for end in ends.values())})",
            all(end["pass@1, least"] > one for end in ends.values()),
        ),
    ]


def draw(rows: list[dict[str, Any]], figure: Any) -> None:
    """Draw pass@1 and pass@8 over the exact steps, and where sampled runs go."""
    panels = figure.subplots(1, 3)
    for axes, what in zip(panels, ("pass@1", "pass@8"), strict=False):
        for name, colour in COLOURS.items():
            own = [row for row in rows if row["arm"] == name and row["how"] == EXACT]
            axes.plot([row["step"] for row in own], [row[what] for row in own], color=colour, label=name)
        axes.set(title=f"{what}, exact", xlabel="step along the expected gradient", xscale="symlog", ylim=(0.2, 1.02))
    panels[0].legend(fontsize=8)
    for name, colour in COLOURS.items():
        own = [row for row in rows if row["arm"] == name and row["how"] == SAMPLED]
        steps = sorted({row["step"] for row in own})
        for seed in {row["seed"] for row in own}:
            line = [mean_of(own, "pass@8", seed=seed, step=step) for step in steps]
            panels[2].plot(steps, line, color=colour, linewidth=0.8)
    panels[2].set(title=f"pass@8, {RUNS} sampled runs each", xlabel="update", ylim=(0.2, 1.02))
