"""If one token of many decides the reward, which tokens get the credit?

docs/labs.md describes the setup and what follows for choosing an algorithm.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from rlenv.agents import A2C, Agent, ReinforceBaseline, Rollout
from rlenv.agents.estimators.aggregation import sequence_sum
from rlenv.agents.policies.base import actor_parameters
from rlenv.verifiers import Problem, Verdict, Verifier

from .base import Check, Finding, Panel
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
LOO = "leave-one-out"
CRITICS: dict[str, dict[str, Any]] = {
    "critic, λ = 1": {"gae_lambda": 1.0, "policy_kwargs": {"critic": "separate"}},
    "critic, λ = 0": {"gae_lambda": 0.0, "policy_kwargs": {"critic": "separate"}},
}
LEARNERS: dict[str, tuple[type[Agent], dict[str, Any]]] = {
    LOO: (ReinforceBaseline, {}),
    **{name: (A2C, settings) for name, settings in CRITICS.items()},
}
CLAIM = (
    "Every token of an answer gets the same credit, most of it noise. A fitted critic takes the noise off; one that "
    "learns along the way does not teach faster, and trusted too early it fails."
)


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
        """Return the letters."""
        return problem.metadata["shown"]

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Look at the decisive token."""
        return Verdict(float(completion[DECISIVE : DECISIVE + 1] == problem.answer))


def run(seed: int) -> Finding:
    """Measure every kind of credit at a half-trained policy, then let the learners run from several starts."""
    starts = seeds_of(seed, STARTS)
    models = [warm_model(Decisive(), own, WARM_STEPS, examples=1024) for own in starts]
    rows = measure_credit(models[0], half_trained(models[0], starts[0]), starts[0])
    found = {row["credit"]: row for row in rows}
    needed = {}
    for name in LEARNERS:
        counts = [updates_to_goal(name, model, own) for own, model in zip(starts, models, strict=True)]
        needed[name] = float(np.mean(counts))
        rows.append(dict.fromkeys(rows[0]) | {"credit": f"learning with {name}", "updates": needed[name]})
    names = list(found)
    panels = [
        Panel(f"{title} of each kind of credit", {title: (names, [found[name][title] for name in names])})
        for title in ("signal", "variance")
    ]
    panels.append(Panel(f"updates to {GOAL:g} success", {"updates": (list(needed), list(needed.values()))}))
    return Finding(CLAIM, checks_of(found, needed), rows, panels, {"updates": needed, "credit": found})


def agents_to_compare(start: Any, now: dict[str, torch.Tensor], seed: int) -> Iterator[tuple[str, Agent]]:
    """Yield an agent for each kind of credit, its policy half-trained, its critic fresh or fitted.

    Args:
        start: the model that training began with.
        now: weights of the half-trained model.
        seed: of the agents.
    """
    fitted: dict[str, torch.Tensor] = {}
    kinds: dict[str, tuple[type[Agent], dict[str, Any]]] = {LOO: (ReinforceBaseline, {})}
    kinds |= {f"{when} {name}": (A2C, CRITICS[name]) for when in ("fresh", "fitted") for name in CRITICS}
    for name, (cls, own) in kinds.items():
        agent = make_agent(cls, start, Decisive(), seed, episodes_per_update=EPISODES, **own)
        agent.policy.model.load_state_dict(now)  # type: ignore[union-attr]
        critic: Any = agent.policy.critic
        if name.startswith("fitted") and not fitted:
            fit_critic(agent, FIT_STEPS, FIT_BATCHES, EPISODES)
            fitted = critic.state_dict()
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
    first = compared[LOO]
    gradients: dict[str, list[torch.Tensor]] = {name: [] for name in compared}
    shares: dict[str, list[float]] = {name: [] for name in compared}
    for _ in range(ROLLOUTS):
        rollout = sample(first, EPISODES)
        log_probs = first.policy.evaluate(rollout)["log_probs"]
        for name, agent in compared.items():
            credit = agent.prepare(rollout).advantages
            objective = (sequence_sum(rollout.mask) * credit * log_probs).sum()
            parts = torch.autograd.grad(objective, actor_parameters(first.policy), retain_graph=True)
            gradients[name].append(torch.cat([part.flatten() for part in parts]).double())
            shares[name].append(off_target(credit, rollout))
    each = {name: torch.stack(own) for name, own in gradients.items()}  # [rollouts, weights]
    mean, noise = each[LOO].mean(0), float(each[LOO].var(0).sum())
    return [
        {
            "credit": name, "variance": float(own.var(0).sum()) / noise, "off_target": float(np.mean(shares[name])),
            "signal": float(own.mean(0) @ mean / mean.square().sum()), "updates": None,
        }
        for name, own in each.items()
    ]  # fmt: skip


def updates_to_goal(name: str, start: Any, seed: int) -> int:
    """Return the updates until `GOAL`, at most `UPDATES`."""
    cls, own = LEARNERS[name]
    agent = make_agent(cls, start, Decisive(), seed, episodes_per_update=TRAIN_EPISODES, learning_rate=1e-3, **own)
    success: list[float] = []
    for _, figures in train(agent, UPDATES):
        success.append(figures["rollout/success_rate"])
        if len(success) >= WINDOW and np.mean(success[-WINDOW:]) >= GOAL:
            break
    return len(success)


def checks_of(found: dict[str, dict[str, Any]], needed: dict[str, float]) -> list[Check]:
    """Return the checks of the claim against the figures of each kind of credit."""
    one, zero = (found[f"fitted critic, λ = {lam}"] for lam in (1, 0))
    loo, critic, early = (needed[name] for name in LEARNERS)
    return [
        Check("share of leave-one-out's credit at tokens that decide nothing", found[LOO]["off_target"], low=0.9),
        *(
            Check(f"variance of a fitted {name}, over leave-one-out's", found[f"fitted {name}"]["variance"], high=0.7)
            for name in CRITICS
        ),
        *(
            Check(f"signal of a fitted {name}, over leave-one-out's", found[f"fitted {name}"]["signal"], 0.7, 1.3)
            for name in CRITICS
        ),
        Check("share at λ = 0, fitted; below 0.8 of λ = 1's", zero["off_target"], high=0.8 * one["off_target"]),
        Check("signal of a fresh critic, λ = 0", found["fresh critic, λ = 0"]["signal"], high=0.5),
        Check("updates with a critic that learns, λ = 1; above 0.6 of leave-one-out's", critic, low=0.6 * loo),
        Check("updates at λ = 0; above twice leave-one-out's, or all there are", early, low=min(2 * loo, UPDATES - 1)),
    ]
