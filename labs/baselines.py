"""How much of the gradient's noise does each baseline remove, and where does it add noise?

docs/labs/baselines.md describes the setup and what follows for choosing an algorithm.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from agents import Agent, Batch, ReinforceBaseline
from agents.core.rollout import join
from agents.estimators.baselines import BASELINES
from agents.exact import TablePolicy, World

from . import lengths
from .base import Check, Finding
from .enumerable import episodes, gradients, make_agent
from .verdicts import (
    ANSWERS,
    COIN,
    NEARLY_LEARNT,
    RIGHT,
    Task,
    binomial,
    coin,
    constant_of,
    nearly_learnt,
    right_answers,
    short_ratio,
    theory,
)

WORLD = World(tokens=ANSWERS, steps=1)
RATES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # p
SIZES = (2, 4, 8, 16)  # K
SAMPLED_RATES, SAMPLED_SIZE, REPLICATIONS = (0.1, 0.5, 0.9), 4, 500
MOST_ERRORS = 4.5  # standard errors a sampled variance may be off
EXACT = 1e-9  # relative difference of two computations of the same figure
CLAIM = (
    "Every baseline has the variance that theory gives it. Leave-one-out removes most noise on easy "
    "prompts, and adds some where fewer than 1 in K answers are right. Weights by the norms of scores remove more."
)


def run(seed: int) -> Finding:
    """Compute every variance three ways and compare them."""
    generator = torch.Generator().manual_seed(seed)
    rows = [row for baseline in BASELINES for size in SIZES for row in _rows(baseline, size)]
    for row in rows:
        chosen = row["task"] == RIGHT and row["K"] == SAMPLED_SIZE and row["p"] in SAMPLED_RATES
        found = sampled_variance(row["baseline"], SAMPLED_SIZE, right_answers(row["p"]), generator) if chosen else None
        row["sampled"], row["sampled_error"] = found or (None, None)
    nearly = _nearly_learnt()
    checks = [*_theory_checks(rows), *_ratio_checks(rows), *_harm_checks(rows), _score_check(nearly)]
    figures = {"variance_without_over_variance_with": _ratio_figures(rows), "nearly_learnt": nearly}
    longer = list(lengths.rows(generator))
    checks += lengths.checks(longer)
    figures["variance_times_K_of_several_steps"] = lengths.figures(longer)
    every = rows + [dict.fromkeys(rows[0]) | row for row in longer]
    return Finding(CLAIM, checks, every, figures, lambda figure: _draw(figure, rows, longer))


def _rows(baseline: str, size: int) -> Iterator[dict[str, Any]]:
    tables = {
        constant: coefficients(baseline, size, constant) for constant in {constant_of(baseline, p) for p in RATES}
    }
    for task in [make_task(p) for make_task in (right_answers, coin) for p in RATES]:
        p = round(task.rate, 10)
        scale, variance = exact_moments(tables[constant_of(baseline, p)], task)
        yield {
            "task": task.name,
            "baseline": baseline,
            "K": size,
            "p": p,
            "variance": variance,
            "theory": theory(baseline, size, task),
            "mean_over_truth": scale,
        }


# The real agent.


def agent_of(baseline: str, constant: float, copies: int) -> Agent:
    """Return the real agent with equally likely answers, its running mean and its critic at a constant."""
    agent = make_agent(ReinforceBaseline, WORLD, torch.zeros(1, ANSWERS), copies, baseline=baseline)
    if baseline == "running-mean":
        agent.load_state_dict({"mean": torch.tensor([constant], dtype=torch.float64)})
    assert isinstance(agent.policy, TablePolicy)
    torch.nn.init.constant_(agent.policy.table, constant)
    return agent


def prepare(agent: Agent, answers: torch.Tensor, rewards: torch.Tensor, first_copy: int = 0) -> Batch:
    """Return the rollout of two prompts, K answers each [2K], as the agent prepares it for its loss."""
    before = agent.state_dict()  # a running mean would let this rollout in
    copies = first_copy + torch.arange(2).repeat_interleave(len(answers) // 2)
    prepared = agent.prepare(episodes(agent.policy, WORLD, answers, rewards, copies))
    agent.load_state_dict(before)
    return prepared


def coefficients(baseline: str, size: int, constant: float) -> torch.Tensor:
    """Return what the agent multiplies the score of each of the K rollouts with [K + 1, K + 1, K].

    The first index is how many of the K are right, those in front; the second how many of the other prompt's K.
    """
    agent = agent_of(baseline, constant, copies=2)
    table = torch.zeros(size + 1, size + 1, size, dtype=torch.float64)
    for ours, others in itertools.product(range(size + 1), repeat=2):
        verdicts = torch.cat([torch.arange(size) < ours, torch.arange(size) < others])  # [2K]
        prepared = prepare(agent, torch.zeros_like(verdicts, dtype=torch.int64), verdicts)
        over_both = (prepared.weights * prepared.advantages)[:size, 0]  # the loss is a mean over both prompts
        table[ours, others] = 2 * over_both
    return table


def exact_moments(table: torch.Tensor, task: Task) -> tuple[float | None, float]:
    """Return the mean of the gradient estimate, in units of the true gradient if that is not zero, and its variance.

    The estimate is Σ_i c_i s_i over the K rollouts. The agent's coefficients c depend on the verdicts only, and once
    these are known the scores s are independent: they enter with their exact moments.

    Args:
        table: `coefficients`.
        task: the prompt; the other one is solved at rate 1 - p.
    """
    size, p = table.shape[-1], task.rate
    chance = torch.outer(binomial(size, p), binomial(size, 1 - p))[..., None]  # [K + 1, K + 1, 1]
    verdicts = (torch.arange(size) < torch.arange(size + 1)[:, None]).long()[:, None]  # [K + 1, 1, K]
    means, norms = task.classes
    known = (table[..., None] * means[verdicts]).sum(-2)  # the mean, given the verdicts [K + 1, K + 1, A]
    noise = (table.square() * (norms - means.square().sum(1))[verdicts]).sum(-1, keepdim=True)
    mean = (chance * known).sum((0, 1))  # [A]
    variance = (chance * (known.square().sum(-1, keepdim=True) + noise)).sum() - mean.square().sum()
    signal = task.gradient.square().sum()
    return (float(mean @ task.gradient / signal) if signal > EXACT else None), float(variance)


def sampled_variance(baseline: str, size: int, task: Task, generator: torch.Generator) -> tuple[float, float]:
    """Return the variance of sampled gradients of the agent's loss, and its standard error."""
    agent = agent_of(baseline, constant_of(baseline, task.rate), copies=2 * REPLICATIONS)
    rollouts = []
    for number in range(REPLICATIONS):
        answers = torch.multinomial(task.pi, 2 * size, replacement=True, generator=generator)
        easy = torch.rand(size, generator=generator) < 1 - task.rate  # verdicts of the other prompt
        rewards = torch.cat([task.right[answers[:size]], easy.double()])
        rollouts.append(prepare(agent, answers, rewards, first_copy=2 * number))
    found = 2 * gradients(agent, join(rollouts, obs_from_actions=False))[::2].flatten(1)  # [R, A]
    distance = (found - found.mean(0)).square().sum(1) * REPLICATIONS / (REPLICATIONS - 1)
    return float(distance.mean()), float(distance.std() / REPLICATIONS**0.5)


def _nearly_learnt() -> dict[str, float]:
    """Return the variances for an answer that is nearly learnt, K = 4."""
    cases = {
        "none": ("none", 0.0),
        "leave-one-out": ("leave-one-out", 0.0),
        "mean reward": ("value", NEARLY_LEARNT),
        "best constant": ("value", 1 - NEARLY_LEARNT),  # E[R|s|²] / E|s|²
    }
    task = nearly_learnt()
    return {case: exact_moments(coefficients(name, 4, constant), task)[1] for case, (name, constant) in cases.items()}


def ratios(rows: list[dict[str, Any]], baseline: str, task: str) -> list[tuple[int, float, float]]:
    """Return K, p and the variance without a baseline over that with this one."""
    found = {(row["baseline"], row["K"], row["p"]): row["variance"] for row in rows if row["task"] == task}
    return [(size, p, found["none", size, p] / value) for (name, size, p), value in found.items() if name == baseline]


# What is said and shown of it.


def _ratio_figures(rows: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for baseline in [name for name in BASELINES if name != "none"]:
        for size, p, ratio in ratios(rows, baseline, RIGHT):
            figures.setdefault(baseline, {}).setdefault(f"K = {size}", {})[f"p = {p}"] = round(ratio, 4)
    return figures


def _theory_checks(rows: list[dict[str, Any]]) -> list[Check]:
    off = max(abs(row["variance"] / row["theory"] - 1) for row in rows)
    sampled = [row for row in rows if row["sampled"] is not None]
    miss = max(abs(row["sampled"] - row["theory"]) / row["sampled_error"] for row in sampled)
    shrunk = {"group-mean": 1, "batch-mean": 2}  # one's own share of the mean is 1/K, 1/2K
    scaled = max(
        abs(row["mean_over_truth"] - 1 + (1 / (shrunk[row["baseline"]] * row["K"]) if row["baseline"] in shrunk else 0))
        for row in rows
        if row["mean_over_truth"] is not None
    )
    return [
        Check(
            f"All {len(rows)} exact variances, of {len(BASELINES)} baselines, agree with the formula; largest relative "
            f"difference {off:.1e}.",
            off < EXACT,
        ),
        Check(
            f"So do {len(sampled)} variances of sampled gradients of the agent's loss, within {MOST_ERRORS} standard "
            f"errors; farthest off: {miss:.1f}.",
            miss < MOST_ERRORS,
        ),
        Check(
            "Every baseline's mean is the true gradient, scaled by (K-1)/K for the group mean and by (2K-1)/2K for the "
            f"mean of both prompts; largest difference {scaled:.1e}. That a group mean has less variance than "
            "leave-one-out is this factor, squared: a smaller step, not a better direction.",
            scaled < EXACT,
        ),
    ]


def _ratio_checks(rows: list[dict[str, Any]]) -> list[Check]:
    off = {
        task: max(abs(ratio / short_ratio(size, p) - 1) for size, p, ratio in ratios(rows, "leave-one-out", task))
        for task in (COIN, RIGHT)
    }
    return [
        Check(
            "Variance without a baseline / variance with leave-one-out is (K-1)/(K(1-p)), exactly, where verdict and "
            f"score are independent; largest relative difference {off[COIN]:.1e}.",
            off[COIN] < EXACT,
        ),
        Check(
            f"Where a share p of {ANSWERS} answers is right, the true gradient is not zero and takes its part of both "
            f"variances: the same within 1/{ANSWERS - 2}; largest relative difference {off[RIGHT]:.3f}.",
            off[RIGHT] <= 1 / (ANSWERS - 2),
        ),
    ]


def _harm_checks(rows: list[dict[str, Any]]) -> list[Check]:
    alone, known, everyone = (ratios(rows, name, COIN) for name in ("leave-one-out", "value", "running-mean"))
    size, p, worst = min(alone, key=lambda case: case[2])
    lowest, batch = (min(ratio for *_, ratio in cases) for cases in (everyone, ratios(rows, "batch-mean", COIN)))
    return [
        Check(
            f"Leave-one-out hurts where p < 1/K and nowhere else: most at K = {size}, p = {p}, where the variance "
            f"without a baseline is {worst:.2f} of that with it.",
            all((ratio < 1) == (p < 1 / size) for size, p, ratio in alone if abs(p * size - 1) > EXACT),
        ),
        Check(
            "The prompt's own success rate as baseline (a perfect critic) never hurts: the ratio is 1/(1-p), from "
            f"{min(ratio for *_, ratio in known):.2f} to {max(ratio for *_, ratio in known):.2f}.",
            all(abs(ratio * (1 - p) - 1) < EXACT for _, p, ratio in known),
        ),
        Check(
            "A running mean of 1/2, made by both prompts, hurts where it is more than twice the success rate, p < 1/4, "
            f"and nowhere else: ratio {lowest:.2f} at worst; the mean of the batch, near 1/2, hurts, too: {batch:.2f}.",
            all((ratio < 1) == (p < 0.25) for _, p, ratio in everyone) and batch < 1,
        ),
    ]


def _score_check(nearly: dict[str, float]) -> Check:
    return Check(
        "Where scores depend on the reward, even the mean reward can hurt. Of two answers, the right one at "
        f"{NEARLY_LEARNT}, K = 4: variance {nearly['none']:.5f} without a baseline, {nearly['mean reward']:.5f} with "
        f"{NEARLY_LEARNT}, {nearly['leave-one-out']:.5f} with leave-one-out, and 0 with the best constant, "
        f"E[R|s|²]/E|s|² = {1 - NEARLY_LEARNT:.1f}.",
        min(nearly["mean reward"], nearly["leave-one-out"]) > nearly["none"] and abs(nearly["best constant"]) < 1e-12,
    )


def _draw(figure: Any, rows: list[dict[str, Any]], longer: list[dict[str, Any]]) -> None:
    figure.set_size_inches(13.5, 4)
    left, right, several = figure.subplots(1, 3)
    lengths.draw(several, longer)
    for number, baseline in enumerate(["value", "running-mean", "batch-mean", "leave-one-out"]):
        labels = {"leave-one-out": "leave-one-out, group-mean, weighted", "value": "value, perfect"}
        _curve(left, rows, baseline, SAMPLED_SIZE, f"C{number}", labels.get(baseline, baseline))
    left.set_title(f"K = {SAMPLED_SIZE}, rescaled to equal means: dots exact, lines theory", fontsize=10)
    for number, size in enumerate(SIZES, start=4):
        _curve(right, rows, "leave-one-out", size, f"C{number}", f"K = {size}")
        right.axvline(1 / size, color=f"C{number}", lw=1, ls=":")
    right.set_title("leave-one-out; dotted: p = 1/K", fontsize=10)
    left.set_ylabel("variance without / variance with")
    for axes in (left, right):
        axes.axhspan(0.05, 1, color="black", alpha=0.06, lw=0)
        axes.text(0.97, 0.85, "below 1: the baseline hurts", ha="right", va="top", fontsize=9)
        axes.set(yscale="log", ylim=(0.12, 30), xlabel="p, success rate of the prompt")
        axes.set_yticks([0.2, 0.5, 1, 2, 5, 10, 20], ["0.2", "0.5", "1", "2", "5", "10", "20"])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(loc="upper left")


def _curve(axes: Any, rows: list[dict[str, Any]], baseline: str, size: int, colour: str, label: str) -> None:
    without, with_it = (
        [row for row in rows if row["task"] == RIGHT and row["baseline"] == name and row["K"] == size]
        for name in ("none", baseline)
    )
    pairs = list(zip(without, with_it, strict=True))
    rates, scales = [row["p"] for row in with_it], [row["mean_over_truth"] ** 2 for row in with_it]
    for kind, style in (("theory", "-"), ("variance", "o")):
        found = [scale * plain[kind] / row[kind] for scale, (plain, row) in zip(scales, pairs, strict=True)]
        axes.plot(rates, found, style, color=colour, ms=4, lw=1, label=label if style == "o" else None)
