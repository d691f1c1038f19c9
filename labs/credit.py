"""If one token of many decides the reward, which tokens get the credit?

docs/labs/credit.md describes the setup and what follows for choosing an algorithm.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from agents import A2C, Agent, Reinforce, ReinforceBaseline, Rollout
from agents.estimators.aggregation import sequence_sum
from verifiers import Problem, Verdict, Verifier

from .base import Check, Finding
from .training import fit_critic, make_agent, sample, seeds_of, train, warm_model

LETTERS, MARKS, LENGTH, DECISIVE = "abcd", "WXYZ", 16, 3
WARM_STEPS = 200
HALF_WAY = 0.45  # success at which the variance is measured
EPISODES = 64
ROLLOUTS = 48
FIT_STEPS, FIT_BATCHES = 300, 24
STARTS = 3
UPDATES = 100
TRAIN_EPISODES = 32
GOAL, WINDOW = 0.9, 5

CRITICS: dict[str, dict[str, Any]] = {
    "critic, λ = 1": {"gae_lambda": 1.0, "policy_kwargs": {"critic": "separate"}},
    "critic, λ = 0.9": {"gae_lambda": 0.9, "policy_kwargs": {"critic": "separate"}},
    "critic, λ = 0": {"gae_lambda": 0.0, "policy_kwargs": {"critic": "separate"}},
}
HEAD = "head, λ = 1"
CREDITS: dict[str, tuple[type[Agent], dict[str, Any]]] = {
    "no baseline": (Reinforce, {}),
    "episode": (ReinforceBaseline, {"returns": "episode"}),
    "return-to-go": (ReinforceBaseline, {"returns": "return-to-go"}),
    "episode, KL": (ReinforceBaseline, {"returns": "episode", "kl_coef": 0.1}),
    "return-to-go, KL": (ReinforceBaseline, {"returns": "return-to-go", "kl_coef": 0.1}),
}
CLAIM = (
    "Every token of an answer gets the same credit, most of it noise. A fitted critic takes the noise off; one that "
    "learns along the way does not teach faster, and trusted too early it fails."
)
SHOWN = {  # in the drawing, of all that is measured
    "episode": "C0",
    "fresh critic, λ = 1": "C1",
    "fresh critic, λ = 0": "C1",
    "fitted critic, λ = 1": "C2",
    "fitted critic, λ = 0": "C2",
    "fitted head, λ = 1": "C2",
}
LEARNERS: dict[str, tuple[type[Agent], dict[str, Any]]] = {
    "leave-one-out": (ReinforceBaseline, {}),
    **{name: (A2C, settings) for name, settings in CRITICS.items()},
}


class Decisive(Verifier):
    """Right is an answer whose token number `DECISIVE` (from 0) is a "W"; all others are free.

    Demonstrations have one of four capitals there, and small letters elsewhere.
    """

    alphabet = LETTERS + MARKS + "?"
    prompt_length = 1
    answer_length = LENGTH

    def sample(self, rng: random.Random) -> Problem:
        """Return the one question there is, and random letters to show for it."""
        letters = rng.choices(LETTERS, k=LENGTH)
        letters[DECISIVE] = rng.choice(MARKS)
        return Problem("?", MARKS[0], {"shown": "".join(letters)})

    def demonstration(self, problem: Problem) -> str:
        """Return those letters."""
        return problem.metadata["shown"]

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Look at the decisive token."""
        return Verdict(float(completion[DECISIVE : DECISIVE + 1] == problem.answer))


def agents_to_compare(start: Any, now: dict[str, torch.Tensor], seed: int) -> Iterator[tuple[str, Agent]]:
    """Yield an agent for each kind of credit, its policy half-trained, its anchor at the start, its critic fitted.

    Args:
        start: the model that training began with.
        now: weights of the half-trained model.
        seed: of the agents.
    """
    fitted: dict[str, torch.Tensor] = {}
    kinds = CREDITS | {f"{when} {name}": (A2C, CRITICS[name]) for when in ("fresh", "fitted") for name in CRITICS}
    kinds[f"fitted {HEAD}"] = (A2C, {"gae_lambda": 1.0})
    for name, (cls, own) in kinds.items():
        agent = make_agent(cls, start, Decisive(), seed, episodes_per_update=EPISODES, **own)
        agent.anchor.freeze_reference(agent.policy)
        agent.policy.model.load_state_dict(now)  # type: ignore[union-attr]
        critic: Any = agent.policy.critic
        if name == f"fitted {HEAD}" or (name.startswith("fitted") and not fitted):
            fit_critic(agent, FIT_STEPS, FIT_BATCHES, EPISODES)
            fitted = fitted or critic.state_dict()
        elif name.startswith("fitted"):
            critic.load_state_dict(fitted)
        yield name, agent


def off_target(advantages: torch.Tensor, rollout: Rollout) -> float:
    """Return the share of the squared advantages that stands at tokens which decide nothing."""
    squares = advantages.square().where(rollout.mask, 0)
    return float(1 - squares[:, DECISIVE].sum() / squares.sum().clamp(min=1e-30))


def half_trained(start: Any, seed: int) -> dict[str, torch.Tensor]:
    """Return the weights of the model once some of its answers are right."""
    agent = make_agent(ReinforceBaseline, start, Decisive(), seed, episodes_per_update=EPISODES)
    recent: list[float] = []
    for _, figures in train(agent, UPDATES):
        recent = [*recent, figures["rollout/success_rate"]][-WINDOW:]
        if np.mean(recent) >= HALF_WAY:
            break
    return agent.policy.model.state_dict()  # type: ignore[union-attr]


def measure_credit(start: Any, now: dict[str, torch.Tensor], seed: int) -> list[dict[str, Any]]:
    """Return the gradient's variance and the share off target for each kind of credit, over the same rollouts."""
    compared = dict(agents_to_compare(start, now, seed))
    first = next(iter(compared.values()))
    parameters = first.policy.actor_parameters()
    gradients: dict[str, list[torch.Tensor]] = {name: [] for name in compared}
    shares: dict[str, list[float]] = {name: [] for name in compared}
    for _ in range(ROLLOUTS):
        rollout = sample(first, EPISODES)
        log_probs, _ = first.policy.evaluate_actions(rollout)
        for name, agent in compared.items():
            credit = agent.prepare(rollout).advantages
            objective = (sequence_sum(rollout.mask) * credit * log_probs).sum()
            parts = torch.autograd.grad(objective, parameters, retain_graph=True)
            gradients[name].append(torch.cat([part.flatten() for part in parts]).double())
            shares[name].append(off_target(credit, rollout))
    variances = {name: float(torch.stack(own).var(0).sum()) for name, own in gradients.items()}
    means = {name: torch.stack(own).mean(0) for name, own in gradients.items()}
    return [
        {
            "kind": "variance", "credit": name, "seed": seed, "update": "",
            "variance": variance / variances["episode"], "off_target": float(np.mean(shares[name])),
            "signal": float(means[name] @ means["episode"] / means["episode"].square().sum()), "success": "",
        }
        for name, variance in variances.items()
    ]  # fmt: skip


def learn(name: str, start: Any, seed: int) -> list[dict[str, Any]]:
    """Train until `GOAL` or for `UPDATES`; return a row for each update."""
    cls, own = LEARNERS[name]
    settings = {"episodes_per_update": TRAIN_EPISODES, "learning_rate": 1e-3}
    agent = make_agent(cls, start, Decisive(), seed, **settings, **own)
    rows: list[dict[str, Any]] = []
    for update, (_, figures) in enumerate(train(agent, UPDATES)):
        row = {"kind": "speed", "credit": name, "seed": seed, "update": update}
        row |= dict.fromkeys(("variance", "off_target", "signal"), "")
        rows.append(row | {"success": figures["rollout/success_rate"]})
        if len(rows) >= WINDOW and np.mean([row["success"] for row in rows[-WINDOW:]]) >= GOAL:
            break
    return rows


def updates_needed(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the updates that each learner needed, averaged over starts; `UPDATES` where one did not get there."""
    counts: dict[tuple[str, int], int] = {}
    for row in rows:
        if row["kind"] == "speed":
            key = (row["credit"], row["seed"])
            counts[key] = max(counts.get(key, 0), row["update"] + 1)
    names = dict.fromkeys(name for name, _ in counts)
    return {name: float(np.mean([n for (own, _), n in counts.items() if own == name])) for name in names}


def checks_of(
    variance: dict[str, float], share: dict[str, float], signal: dict[str, float], needed: dict[str, float]
) -> list[Check]:
    """Return what the claim says, against the figures of each kind of credit."""
    kl_ratio = variance["return-to-go, KL"] / variance["episode, KL"]
    one, zero, fresh, head = "fitted critic, λ = 1", "fitted critic, λ = 0", "fresh critic, λ = 0", f"fitted {HEAD}"
    loo, critic, early = (needed[name] for name in ("leave-one-out", "critic, λ = 1", "critic, λ = 0"))
    return [
        Check(
            f"with one reward at the end, return-to-go is the episode's return (variance exactly "
            f"{variance['return-to-go']:g} of it) and most credit decides nothing (above 0.9; {share['episode']:.2f})",
            variance["return-to-go"] == 1 and share["episode"] > 0.9,
        ),
        Check(
            f"with a price on every token, return-to-go does not always gain (0.5 to 2 times the episode's variance; "
            f"{kl_ratio:.2f})",
            0.5 < kl_ratio < 2,
        ),
        Check(
            f"a fitted critic takes noise off (variance below 0.7 of leave-one-out's; λ = 1: {variance[one]:.2f}, "
            f"λ = 0: {variance[zero]:.2f}) and keeps the signal (0.7 to 1.3; {signal[one]:.2f}, {signal[zero]:.2f})",
            max(variance[one], variance[zero]) < 0.7 and all(0.7 < signal[name] < 1.3 for name in (one, zero)),
        ),
        Check(
            f"λ = 0 puts more of the credit on the decisive token (off target below 0.8 of that of λ = 1: "
            f"{share[zero]:.2f} to {share[one]:.2f})",
            share[zero] < 0.8 * share[one],
        ),
        Check(
            f"a fitted head on the policy's trunk sees less (variance above 1.2 times that of a critic with its own; "
            f"{variance[head]:.2f})",
            variance[head] > 1.2 * variance[one],
        ),
        Check(f"a fresh critic with λ = 0 loses the signal (below 0.5; {signal[fresh]:.2f})", signal[fresh] < 0.5),
        Check(
            f"learned along the way, λ = 1 is not much faster than leave-one-out (above 0.6 of the updates; "
            f"{critic:.0f} to {loo:.0f})",
            critic > 0.6 * loo,
        ),
        Check(
            f"and λ = 0 does not get there (more than twice leave-one-out's updates, or all {UPDATES}; {early:.0f})",
            early > min(2 * loo, UPDATES - 1),
        ),
    ]


def draw_figures(figures: dict[str, float], figure: Any) -> None:
    """Draw what of the signal and the noise each kind of credit has, and how fast it teaches.

    Args:
        figures: of the finding.
        figure: of matplotlib.
    """
    left, middle, right = figure.subplots(1, 3)
    for axes, column, title in ((left, "signal", "signal (1 = all of it)"), (middle, "variance", "noise (variance)")):
        for place, (name, color) in enumerate(SHOWN.items()):
            value = figures[f"{column}, {name}"]
            axes.barh(place, value, color=color)
            axes.text(value + 0.02, place, f"{value:.2f}", va="center", fontsize=9)
        axes.axvline(1, color="k", linestyle=":", linewidth=1)
        axes.set(title=title, xlim=(0, 1.3))
    left.set_yticks(range(len(SHOWN)), ["leave-one-out", *list(SHOWN)[1:]], fontsize=10)
    middle.set_yticks([])
    for place, name in enumerate(LEARNERS):
        value = figures[f"updates to {GOAL:g}, {name}"]
        right.barh(place, value, color="C0" if name == "leave-one-out" else "C1")
        right.text(value + 2, place, "never" if value >= UPDATES else f"{value:.0f}", va="center", fontsize=9)
    right.set_yticks(range(len(LEARNERS)), [*LEARNERS], fontsize=10)
    right.set(title=f"updates to {GOAL:g} success", xlim=(0, 1.25 * UPDATES))
    for axes in (left, middle, right):
        axes.invert_yaxis()


def run(seed: int) -> Finding:
    """Measure every kind of credit at a half-trained policy, then let the learners run from several starts."""
    starts = seeds_of(seed, STARTS)
    models = [warm_model(Decisive(), own, WARM_STEPS, examples=1024) for own in starts]
    pupil = half_trained(models[0], starts[0])
    rows = measure_credit(models[0], pupil, starts[0])
    for own, model in zip(starts, models, strict=True):
        rows += [row for name in LEARNERS for row in learn(name, model, own)]
    measured = [row for row in rows if row["kind"] == "variance"]
    variance = {row["credit"]: row["variance"] for row in measured}
    signal = {row["credit"]: row["signal"] for row in measured}
    share = {row["credit"]: row["off_target"] for row in measured}
    needed = updates_needed(rows)
    figures = {
        **{f"variance, {name}": round(figure, 4) for name, figure in variance.items()},
        **{f"off target, {name}": round(figure, 4) for name, figure in share.items()},
        **{f"signal, {name}": round(figure, 4) for name, figure in signal.items()},
        **{f"updates to {GOAL:g}, {name}": round(figure, 1) for name, figure in needed.items()},
    }
    return Finding(
        claim=CLAIM,
        checks=checks_of(variance, share, signal, needed),
        rows=rows,
        figures=figures,
        draw=lambda figure: draw_figures(figures, figure),
    )
