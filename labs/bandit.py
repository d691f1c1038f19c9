"""Which way does one sample push the policy, and what does a baseline change?

docs/labs.md describes the setup and what follows for choosing an algorithm.
"""

from __future__ import annotations

from typing import Any

import torch

from rlenv.agents import Agent, Reinforce, ReinforceBaseline
from rlenv.agents.exact import TablePolicy, World, WorldEnv, episodes, gradient

from .base import Check, Finding, Panel, column, where
from .enumerable import make_agent

WORLD = World(tokens=3, steps=1)
PROBABILITIES = torch.tensor([0.3, 0.5, 0.2], dtype=torch.float64)
REWARDS = torch.tensor([8.0, 3.0, 5.0], dtype=torch.float64)
MEAN, BEST = 4.9, 0
NUDGE = 0.01  # the step along one sample's gradient after which probabilities are compared

RUNS, MOST_UPDATES, RATE, ENOUGH = 20, 100, 0.1, 0.95
PLAIN, RUNNING, RELATIVE = "no baseline", "running mean", "leave-one-out"
AGENTS: dict[str, tuple[type[Agent], dict[str, Any]]] = {
    PLAIN: (Reinforce, {}),
    RUNNING: (ReinforceBaseline, {"baseline": "running-mean"}),
    RELATIVE: (ReinforceBaseline, {"baseline": "leave-one-out"}),
}
FEW, MANY = 1, 4  # episodes of an update
TRAINED = ((FEW, PLAIN), (FEW, RUNNING), (MANY, PLAIN), (MANY, RUNNING), (MANY, RELATIVE))
MOST = 0.85  # with a baseline, a larger share of the runs is to find the best answer
CLAIM = (
    "On average both gradients are the same. Without a baseline every sampled answer is pushed up, and from one sample "
    "per update, training then mostly misses the best answer; with a baseline it finds it."
)


def run(seed: int) -> Finding:
    """Look at single samples exactly, then train."""
    pushes = {name: single_samples(name) for name in (PLAIN, RUNNING)}
    curves = {(count, name): train(name, count, seed) for count, name in TRAINED}
    rows = [row for (count, name), curve in curves.items() for row in rows_of(count, name, curve)]
    figures = {
        "gradient_by_answer": {name: push.tolist() for name, push in pushes.items()},
        "found_the_best": {f"{name}, {count}": share_found(curve) for (count, name), curve in curves.items()},
        "median_updates": {
            f"{name}, {count}": float(updates_needed(curve).median()) for (count, name), curve in curves.items()
        },
    }
    answers = [f"earns {reward:g}" for reward in REWARDS.tolist()]
    changes = {name: (answers, after_a_step(push)[:, BEST].tolist()) for name, push in pushes.items()}
    earned = {
        f"{name}, {count} per update": column(where(rows, samples=count, baseline=name), "update", "expected_reward")
        for count, name in TRAINED
    }
    panels = [
        Panel("what one sample does to π(best)", changes, "the answer sampled"),
        Panel(f"expected reward, mean of {RUNS} runs", earned, "updates"),
    ]
    return Finding(CLAIM, [*push_checks(pushes), *training_checks(curves)], rows, panels, figures)


# One sample.


def single_samples(name: str) -> torch.Tensor:
    """Return the gradient of the agent's loss for an update of one sample, for each answer it can be [3, 3].

    The baseline, if any, already equals the policy's mean reward.
    """
    cls, settings = AGENTS[name]
    agent = make_agent(cls, WORLD, PROBABILITIES.log()[None], copies=3, **settings)
    if settings:
        agent.carried["baseline"].load_state_dict({"mean": torch.tensor([MEAN], dtype=torch.float64)})
    answers = torch.arange(3)
    rollout = episodes(agent.policy, WORLD, answers, REWARDS, answers)
    return 3 * gradient(agent, agent.prepare(rollout))[:, 0]  # the loss is a mean over the three


def after_a_step(push: torch.Tensor) -> torch.Tensor:
    """Return the probabilities after a small step along each sample's gradient, less those before [3, 3]."""
    return (PROBABILITIES.log() + NUDGE * push).softmax(-1) - PROBABILITIES


def push_checks(pushes: dict[str, torch.Tensor]) -> list[Check]:
    """Return the figures of the claim about single samples."""
    by_hand = PROBABILITIES * (REWARDS - MEAN)
    off = torch.stack([PROBABILITIES @ push - by_hand for push in pushes.values()])
    own = {name: after_a_step(push).diagonal() for name, push in pushes.items()}  # of the answer sampled
    helped = {name: float(PROBABILITIES[after_a_step(push)[:, BEST] > 0].sum()) for name, push in pushes.items()}
    spread = {
        name: float(PROBABILITIES @ push.square().sum(1) - (PROBABILITIES @ push).square().sum())
        for name, push in pushes.items()
    }
    towards = own[RUNNING] * (REWARDS - MEAN).sign()
    return [
        Check("largest difference of both expected gradients from p(r - 4.9)", float(off.abs().max()), high=1e-12),
        Check("least rise of a sampled answer's probability, without a baseline", float(own[PLAIN].min()), low=0),
        Check("least change of it towards r - 4.9, with the baseline", float(towards.min()), low=0),
        Check("probability that a sample helps the best answer, without", helped[PLAIN], 0.29, 0.31),
        Check("probability that a sample helps the best answer, with it", helped[RUNNING], 0.79, 0.81),
        Check("variance of a sample's gradient; below that without", spread[RUNNING], high=spread[PLAIN]),
    ]


# Training.


def train(name: str, count: int, seed: int) -> torch.Tensor:
    """Return π before every update [runs, updates + 1, 3]; a run ends at π(best) = 0.95, and its last π stands on."""
    cls, settings = AGENTS[name]
    curves = torch.zeros(RUNS, MOST_UPDATES + 1, 3, dtype=torch.float64)
    for number, curve in enumerate(curves):
        policy = TablePolicy(PROBABILITIES.log()[None])
        envs = WorldEnv(WORLD, WORLD.at_the_end(REWARDS[None]), num_envs=count)
        agent = cls(
            policy, envs, episodes_per_update=count, learning_rate=RATE,
            lr_schedule="constant", seed=seed * RUNS + number, device="cpu", **settings,
        )  # fmt: skip
        curve[:] = PROBABILITIES
        for update, _ in enumerate(agent.updates(total_episodes=MOST_UPDATES * count), 1):
            curve[update:] = policy.logits.detach()[0, 0].softmax(-1)
            if curve[-1, BEST] >= ENOUGH:
                break
    return curves


def updates_needed(curve: torch.Tensor) -> torch.Tensor:
    """Return the updates before π(best) reached 0.95 [runs]; one more than were allowed where it did not."""
    return (curve[:, :, BEST] < ENOUGH).sum(1).double()


def share_found(curve: torch.Tensor) -> float:
    """Return the share of the runs that found the best answer."""
    return float((updates_needed(curve) <= MOST_UPDATES).double().mean())


def training_checks(curves: dict[tuple[int, str], torch.Tensor]) -> list[Check]:
    """Return the figures of the claim about training."""
    based = {key: curve for key, curve in curves.items() if key[1] != PLAIN}
    found = min(map(share_found, based.values()))
    earned = torch.stack([(curve[:, -1] @ REWARDS).mean() for curve in based.values()])
    slow, fast, _ = (float(updates_needed(curves[MANY, name]).median()) for name in AGENTS)
    return [
        Check("least share of runs that find the best answer with a baseline", found, low=MOST),
        Check("their least mean reward at the end", float(earned.min()), low=7),
        Check("share of runs that find it without, from single samples", share_found(curves[FEW, PLAIN]), high=0.5),
        Check(f"median updates with the running mean, {MANY} samples each; below those without", fast, high=slow),
    ]


def rows_of(count: int, name: str, curve: torch.Tensor) -> list[dict[str, Any]]:
    """Return the means over the runs, by update."""
    earned, best = (curve @ REWARDS).mean(0), curve[:, :, BEST]  # [updates + 1], [runs, updates + 1]
    return [
        {
            "samples": count, "baseline": name, "update": update, "expected_reward": float(reward),
            "probability_of_best": float(best[:, update].mean()),
        }
        for update, reward in enumerate(earned)
    ]  # fmt: skip
