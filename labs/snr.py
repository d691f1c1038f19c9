"""How many rollouts of a prompt does a gradient need before it points in the right direction?

docs/labs.md describes the setup and what follows for choosing an algorithm.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import torch

from rlenv.agents import RLOO, Agent, Reinforce
from rlenv.agents.exact import World, episodes, gradient, true_gradient

from .base import Check, Finding, Panel, column, where
from .enumerable import make_agent, scores

WORLD = World(tokens=3, steps=3, end=2)
LEVELS = (1.0,) * 5 + (0.5,) * 5 + (0.0,) * 5  # of the 15 completions, in an order the seed decides
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # K
REPLICATIONS = 2000  # sampled gradients for every K
MOST_ERRORS = 4.5  # standard errors a sampled figure may be off; one in 150,000 is by chance
PLAIN, RELATIVE = "no baseline", "leave-one-out"
METHODS: dict[str, type[Agent]] = {PLAIN: Reinforce, RELATIVE: RLOO}
STEADY = 8  # K from which the mean cosine is to rise with every doubling
LARGE = 4  # K from which leave-one-out is to be better; at 2, the one other rollout may cost more than it gives
CLAIM = (
    "The gradient of K rollouts is right on average for every K, and its variance falls as 1/K. The same "
    "holds for leave-one-out."
)


class Task(NamedTuple):
    """A policy, the rewards and probabilities of its answers, and the true gradient."""

    logits: torch.Tensor  # [S, V]
    rewards: torch.Tensor  # [C]
    pi: torch.Tensor  # [C]
    gradient: torch.Tensor  # [S, V]


def task_of(generator: torch.Generator) -> Task:
    """Return a task with random logits, whose rewards are in random order."""
    logits = 0.8 * torch.randn(len(WORLD.prefixes), WORLD.tokens, generator=generator, dtype=torch.float64)
    rewards = torch.tensor(LEVELS, dtype=torch.float64)[torch.randperm(len(LEVELS), generator=generator)]
    return Task(logits, rewards, WORLD.log_probs(logits).exp(), true_gradient(WORLD, logits, WORLD.at_the_end(rewards)))


def run(seed: int) -> Finding:
    """Measure both methods for every K."""
    generator = torch.Generator().manual_seed(seed)
    task = task_of(generator)
    plain = [measure(PLAIN, size, task, generator) for size in SIZES]
    rows = plain + [measure(RELATIVE, size, task, generator) for size in SIZES if size > 1]
    figures = {
        name: {m: {row["K"]: round(row[name], 3) for row in where(rows, method=m)} for m in METHODS}
        for name in ("cosine", "relative_error")
    }
    error_of = {m: column(where(rows, method=m), "K", "relative_error") for m in METHODS}
    exact = {f"{m}, exact": column(where(rows, method=m), "K", "relative_error_exact") for m in METHODS}
    cosine = {m: column(where(rows, method=m), "K", "cosine") for m in METHODS}
    panels = [
        Panel("error: |g - g*| / |g*|", error_of | exact, "K, rollouts of the prompt", "xy"),
        Panel("direction: mean cosine to the true gradient", cosine, "K, rollouts of the prompt", "x"),
    ]
    return Finding(CLAIM, checks_of(rows), rows, panels, figures)


def measure(method: str, size: int, task: Task, generator: torch.Generator) -> dict[str, Any]:
    """Return the figures of many sampled gradients of K rollouts each.

    Every replication has a copy of the policy's table, so one backward pass of the agent's loss gives all of them.
    """
    agent = make_agent(METHODS[method], WORLD, task.logits, copies=REPLICATIONS)
    drawn = torch.multinomial(task.pi, REPLICATIONS * size, replacement=True, generator=generator)  # [R * K]
    copies = torch.arange(REPLICATIONS).repeat_interleave(size)
    rollout = episodes(agent.policy, WORLD, drawn, task.rewards[drawn], copies)
    found = REPLICATIONS * gradient(agent, agent.prepare(rollout)).flatten(1)  # [R, S * V]; the loss is a mean over R
    true = task.gradient.flatten()
    distance = (found - true).square().sum(1)  # its mean is the trace of the covariance, where the mean is the truth
    share = found @ true / true.square().sum()
    cosine = (found @ true / (found.norm(dim=1) * true.norm())).nan_to_num(0.0)  # no gradient has no direction
    exact = exact_variance(method, size, task)
    return {
        "method": method,
        "K": size,
        "variance": float(distance.mean()),
        "variance_error": _standard_error(distance),
        "variance_exact": exact,
        "relative_error": float(distance.mean().sqrt() / true.norm()),
        "relative_error_exact": exact**0.5 / float(true.norm()),
        "cosine": float(cosine.mean()),
        "mean_along_truth": float(share.mean()),
        "mean_along_truth_error": _standard_error(share),
    }


def exact_variance(method: str, size: int, task: Task) -> float:
    """Return the trace of the covariance of the gradient of K rollouts, from the definition of the method.

        no baseline       (E[R²|s|²] - |g|²) / K
        leave-one-out     (E[(R - E R)²|s|²] + Var(R) E[|s|²] / (K - 1)) / K - |g|² (K - 2) / (K (K - 1))

    s is the score ∇log π(y), g = E[R s] the true gradient. The second follows from E[s] = 0: of the products of two
    different rollouts' terms only those in which both scores meet their own or the other's reward are left.
    """
    norms = scores(WORLD, task.logits).square().sum(1)  # [C]
    signal = float(task.gradient.square().sum())
    if method == PLAIN:
        return (float((task.pi * task.rewards.square() * norms).sum()) - signal) / size
    spread = (task.rewards - task.pi @ task.rewards).square()  # [C]
    own, others = float((task.pi * spread * norms).sum()), float((task.pi @ spread) * (task.pi @ norms))
    return (own + others / (size - 1)) / size - signal * (size - 2) / (size * (size - 1))


def checks_of(rows: list[dict[str, Any]]) -> list[Check]:
    """Return the checks of the claim against the rows."""
    bias = max(abs(row["mean_along_truth"] - 1) / row["mean_along_truth_error"] for row in rows)
    miss = max(abs(row["variance"] - row["variance_exact"]) / row["variance_error"] for row in rows)
    plain = where(rows, method=PLAIN)
    steps = itertools.pairwise(row["cosine"] for row in plain if row["K"] >= STEADY)
    before = {row["K"]: row["variance"] for row in plain}
    gain = min(before[row["K"]] / row["variance"] for row in where(rows, method=RELATIVE) if row["K"] >= LARGE)
    first, last = plain[0]["cosine"], plain[-1]["cosine"]
    return [
        Check("standard errors of the mean along the true gradient, farthest from 1", bias, high=MOST_ERRORS),
        Check("standard errors of a variance, farthest from the exact one", miss, high=MOST_ERRORS),
        Check(f"cosine without a baseline at K = {SIZES[-1]}; above that at K = {SIZES[0]}", last, low=first),
        # Below STEADY, a gradient is that of very few answers, and the cosine need not rise.
        Check(f"least rise of that cosine, from K = {STEADY} on", min(after - now for now, after in steps), low=0),
        Check(f"least variance without a baseline / with leave-one-out, from K = {LARGE} on", gain, low=1),
    ]


def _standard_error(values: torch.Tensor) -> float:
    return max(float(values.std()) / len(values) ** 0.5, 1e-12)  # constant only where something is wrong
