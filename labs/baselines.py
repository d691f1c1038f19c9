"""How much of the gradient's noise does each baseline remove, and where does it add noise?

docs/labs.md describes the setup and what follows for choosing an algorithm.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import torch

from rlenv.agents import Agent, ReinforceBaseline
from rlenv.agents.estimators.baselines import BASELINES
from rlenv.agents.exact import TablePolicy, World, episodes

from .base import Check, Finding, Panel
from .enumerable import make_agent, scores

COMPARED = tuple(name for name in BASELINES if name not in ("greedy", "james-stein"))  # linear in the rewards
ANSWERS = 20  # equally likely
RATES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # p
SIZES = (2, 4, 8, 16)  # K
SHOWN = 4  # the K of the drawing
RIGHT, COIN = "right answers", "coin"
EXACT = 1e-9  # relative difference of two computations of the same figure
CLAIM = (
    "Each of the eight baselines has the variance that theory gives it. Leave-one-out removes most noise on easy "
    "prompts, and adds some where fewer than 1 in K answers are right."
)
Rows = list[dict[str, Any]]


def run(seed: int) -> Finding:
    """Compute every variance from the agent's own coefficients, and from theory; nothing is sampled."""
    rows = [row for baseline in COMPARED for size in SIZES for row in rows_of(baseline, size)]
    figures = {
        f"{baseline}, K = {size}": {
            p: round(ratio, 4) for own, p, ratio in ratios(rows, baseline, RIGHT) if own == size
        }
        for baseline in COMPARED
        for size in SIZES
    }

    def curve(baseline: str, size: int) -> tuple[list[float], list[float]]:
        found = [(p, ratio) for own, p, ratio in ratios(rows, baseline, RIGHT) if own == size]
        return [p for p, _ in found], [ratio for _, ratio in found]

    named = {name: curve(name, SHOWN) for name in ("value", "running-mean", "leave-one-out")}
    sized = {f"K = {size}": curve("leave-one-out", size) for size in SIZES}
    panels = [
        Panel(f"variance without / with, K = {SHOWN}; below 1 it hurts", named, "p, success rate", "y"),
        Panel("leave-one-out", sized, "p, success rate", "y"),
    ]
    return Finding(CLAIM, [*theory_checks(rows), *harm_checks(rows)], rows, panels, figures)


# Prompts whose answers are judged 0 or 1.


class Task(NamedTuple):
    """A prompt with one-step answers."""

    name: str
    pi: torch.Tensor  # probabilities of the answers [A]
    right: torch.Tensor  # probability that an answer is judged right [A]

    @property
    def rate(self) -> float:
        """The success rate p."""
        return float(self.pi @ self.right)

    @property
    def scores(self) -> torch.Tensor:
        """∇log π of each answer in the logits [A, A]."""
        return scores(World(tokens=len(self.pi), steps=1), self.pi.log()[None])

    @property
    def gradient(self) -> torch.Tensor:
        """The true gradient, E[R s] [A]."""
        return (self.pi * self.right) @ self.scores


def tasks(p: float) -> tuple[Task, Task]:
    """Return two tasks of rate p: a share of the answers is right; any is judged right by a coin, independent of s."""
    pi = torch.full((ANSWERS,), 1 / ANSWERS, dtype=torch.float64)
    right = (torch.arange(ANSWERS) < round(p * ANSWERS)).double()
    return Task(RIGHT, pi, right), Task(COIN, pi, torch.full_like(pi, p))


def constant_of(baseline: str, p: float) -> float:
    """Return the value of a baseline that outlives the update, beside a prompt of rate 1 - p: p for the critic."""
    return {"running-mean": 0.5, "value": p}.get(baseline, 0.0)


def rows_of(baseline: str, size: int) -> Rows:
    """Return a row for each task and rate."""
    rows = []
    for p in RATES:
        table = coefficients(baseline, size, constant_of(baseline, p))
        for task in tasks(p):
            scale, variance = exact_moments(table, task)
            known = {"task": task.name, "baseline": baseline, "K": size, "p": p, "variance": variance}
            rows.append(known | {"theory": theory(baseline, size, task), "mean_over_truth": scale})
    return rows


# The real agent.


def coefficients(baseline: str, size: int, constant: float) -> torch.Tensor:
    """Return the agent's factors of the score of each of the K rollouts [K + 1, K + 1, K].

    The first index is how many of the K are right, those in front; the second how many of another prompt's K. What
    outlives an update, running mean or critic, is at a constant.
    """
    agent: Agent = make_agent(ReinforceBaseline, World(2, 1), torch.zeros(1, 2), 2, baseline=baseline)
    state = {"mean": torch.tensor([constant], dtype=torch.float64)} if baseline == "running-mean" else None
    assert isinstance(agent.policy, TablePolicy)
    torch.nn.init.constant_(agent.policy.table, constant)
    table = torch.zeros(size + 1, size + 1, size, dtype=torch.float64)
    for ours, others in itertools.product(range(size + 1), repeat=2):
        if state:
            agent.carried["baseline"].load_state_dict(state)  # the last rollout has moved it
        verdicts = torch.cat([torch.arange(size) < ours, torch.arange(size) < others])  # [2K]
        prompt = torch.arange(2).repeat_interleave(size)
        prepared = agent.prepare(episodes(agent.policy, World(2, 1), torch.zeros_like(prompt), verdicts, prompt))
        table[ours, others] = 2 * (prepared.weights * prepared.advantages)[:size, 0]  # the loss is a mean over both
    return table


def exact_moments(table: torch.Tensor, task: Task) -> tuple[float | None, float]:
    """Return the mean of the gradient estimate, in units of the true gradient if that is not zero, and its variance.

    The estimate is Σ_i c_i s_i over the K rollouts. The agent's coefficients c depend on the verdicts only, and once
    these are known the scores s are independent: they enter with their exact moments.

    Args:
        table: `coefficients`.
        task: the prompt; the other one is solved at rate 1 - p.
    """
    size, p, score = table.shape[-1], task.rate, task.scores
    joint = torch.stack([task.pi * (1 - task.right), task.pi * task.right])
    given = joint / joint.sum(1, keepdim=True)  # the answers, given the verdict [2, A]
    means, norms = given @ score, given @ score.square().sum(1)  # [2, A], [2]
    chance = torch.outer(binomial(size, p), binomial(size, 1 - p))[..., None]  # [K + 1, K + 1, 1]
    verdicts = (torch.arange(size) < torch.arange(size + 1)[:, None]).long()[:, None]  # [K + 1, 1, K]
    known = (table[..., None] * means[verdicts]).sum(-2)  # the mean, given the verdicts [K + 1, K + 1, A]
    noise = (table.square() * (norms - means.square().sum(1))[verdicts]).sum(-1, keepdim=True)
    mean = (chance * known).sum((0, 1))  # [A]
    variance = (chance * (known.square().sum(-1, keepdim=True) + noise)).sum() - mean.square().sum()
    signal = task.gradient.square().sum()
    return (float(mean @ task.gradient / signal) if signal > EXACT else None), float(variance)


def binomial(trials: int, p: float) -> torch.Tensor:
    """Return the probabilities of 0 ... n successes [n + 1]."""
    chances = [math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(trials + 1)]
    return torch.tensor(chances, dtype=torch.float64)


def theory(baseline: str, size: int, task: Task) -> float:
    """Return the variance of the gradient estimate g = 1/K Σ_i A_i s_i, where |s|² does not depend on the reward.

    Weighted baselines are leave-one-out: lengths are 1 here, and with answers that are equally likely all scores have
    the same norm. Every baseline gives A_i = a R_i - b Σ_{j≠i} R_j - b Σ_k R'_k - c, with the other prompt's rewards R'
    or without:

        none           1           0          c = 0          leave-one-out  1           1/(K-1)    without R'
        running mean   1           0          c = 1/2        group mean     (K-1)/K     1/K        without R'
        value          1           0          c = p          batch mean     (2K-1)/2K   1/2K       with R'

    Scores have mean zero, and E[R s] is the true gradient g*. So E[g] = a g*, and of A_i A_j ⟨s_i, s_j⟩ with i ≠ j only
    (a² + b²) |g*|² is left: each of the two scores needs a reward of the same rollout, which either A may bring. Hence

        tr Cov(g) = 1/K (E|s|² E[A²] + (K-1)(a² + b²) |g*|²) - a² |g*|²

    Where g* = 0, that is E|s|² E[A²] / K, and E[A²] is p without a baseline and p(1-p) K/(K-1) with leave-one-out.
    """
    p, both = task.rate, 2 * size
    own, shared, others = {
        **dict.fromkeys(("none", "running-mean", "value"), (1.0, 0.0, 0)),
        **dict.fromkeys(("leave-one-out", "length-weighted", "optimal-token"), (1.0, 1 / (size - 1), 0)),
        "group-mean": (1 - 1 / size, 1 / size, 0),
        "batch-mean": (1 - 1 / both, 1 / both, size),
    }[baseline]
    mean = own * p - shared * ((size - 1) * p + others * (1 - p)) - constant_of(baseline, p)  # E[A]
    spread = (own**2 + shared**2 * (size - 1 + others)) * p * (1 - p)  # Var(A)
    norm, signal = float(task.pi @ task.scores.square().sum(1)), float(task.gradient.square().sum())
    return (norm * (mean**2 + spread) + (size - 1) * (own**2 + shared**2) * signal) / size - own**2 * signal


def ratios(rows: Rows, baseline: str, task: str) -> list[tuple[int, float, float]]:
    """Return K, p and the variance without a baseline over that with this one."""
    found = {(row["baseline"], row["K"], row["p"]): row["variance"] for row in rows if row["task"] == task}
    return [(size, p, found["none", size, p] / value) for (name, size, p), value in found.items() if name == baseline]


# What is claimed.


def theory_checks(rows: Rows) -> list[Check]:
    """Return the claim about means and variances."""
    off = max(abs(row["variance"] / row["theory"] - 1) for row in rows)
    shrunk = {"group-mean": 1, "batch-mean": 2}  # one's own share of the mean is 1/K, 1/2K
    scaled = max(
        abs(row["mean_over_truth"] - 1 + (1 / (shrunk[row["baseline"]] * row["K"]) if row["baseline"] in shrunk else 0))
        for row in rows
        if row["mean_over_truth"] is not None
    )
    short = max(abs(ratio * size * (1 - p) / (size - 1) - 1) for size, p, ratio in ratios(rows, "leave-one-out", COIN))
    return [
        Check(f"largest relative difference of {len(rows)} exact variances from the formula", off, high=EXACT),
        # Group and batch mean by (K-1)/K and (2K-1)/2K: their smaller variance is a smaller step, no better direction.
        Check("largest difference of a mean from the true gradient, scaled for two", scaled, high=EXACT),
        Check("largest difference of without / with leave-one-out from (K-1)/(K(1-p))", short, high=EXACT),
    ]


def harm_checks(rows: Rows) -> list[Check]:
    """Return where baselines hurt: where the variance without one is below that with it."""
    alone, everyone, batch, known = (
        ratios(rows, name, COIN) for name in ("leave-one-out", "running-mean", "batch-mean", "value")
    )
    of_alone = sum((ratio < 1) != (p < 1 / size) for size, p, ratio in alone if abs(p * size - 1) > EXACT)
    of_everyone = sum((ratio < 1) != (p < 0.25) for _, p, ratio in everyone)
    critic = max(abs(ratio * (1 - p) - 1) for _, p, ratio in known)
    least = "least variance without / with"
    return [
        Check("exceptions to: leave-one-out hurts where p < 1/K", of_alone, high=1),
        Check(f"{least} leave-one-out", min(ratio for *_, ratio in alone), high=1),
        Check("exceptions to: a running mean of 1/2 hurts where it is more than twice p", of_everyone, high=1),
        Check(f"{least} a running mean of 1/2", min(ratio for *_, ratio in everyone), high=1),
        Check(f"{least} the mean of the batch, near 1/2", min(ratio for *_, ratio in batch), high=1),
        Check("largest relative difference of the ratio of a perfect critic from 1/(1-p)", critic, high=EXACT),
    ]
