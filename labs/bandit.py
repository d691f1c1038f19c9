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
MOST = 0.9  # share of the runs that are to find the best answer with a baseline
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
    off = max(float((PROBABILITIES @ push - by_hand).abs().max()) for push in pushes.values())
    own = {name: after_a_step(push).diagonal() > 0 for name, push in pushes.items()}
    helped = {name: float(PROBABILITIES[after_a_step(push)[:, BEST] > 0].sum()) for name, push in pushes.items()}
    spread = {
        name: float(PROBABILITIES @ push.square().sum(1) - (PROBABILITIES @ push).square().sum())
        for name, push in pushes.items()
    }
    return [
        Check(
            "The expected gradient is p(r - 4.9) = (0.93, -0.95, 0.02), with the baseline and without; "
            f"largest difference {off:.1e}.",
            off < 1e-12,
        ),
        Check("Without a baseline, every answer's probability rises when it is sampled.", bool(own[PLAIN].all())),
        Check(
            "With the baseline 4.9, it rises for the answers that earn more, and falls for the one that earns 3.",
            torch.equal(own[RUNNING], REWARDS > MEAN),
        ),
        Check(
            f"One sample helps the best answer with probability {helped[PLAIN]:.1f} without a baseline and "
            f"{helped[RUNNING]:.1f} with it (expected: 0.3, a sample of itself; 0.8, itself or the worst).",
            abs(helped[PLAIN] - 0.3) < 1e-9 and abs(helped[RUNNING] - 0.8) < 1e-9,
        ),
        Check(
            f"The variance of one sample's gradient falls from {spread[PLAIN]:.2f} to {spread[RUNNING]:.2f}.",
            spread[RUNNING] < spread[PLAIN],
        ),
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
    helped = {key: share_found(curve) for key, curve in curves.items() if key[1] != PLAIN}
    earned = {key: float((curves[key][:, -1] @ REWARDS).mean()) for key in helped}
    found = ", ".join(f"{helped[key]:.2f} ({key[1]}, {key[0]} per update; reward {earned[key]:.2f})" for key in helped)
    alone = share_found(curves[FEW, PLAIN])
    slow, fast, relative = (float(updates_needed(curves[MANY, name]).median()) for name in AGENTS)
    return [
        Check(
            f"With a baseline, at least {MOST} of the {RUNS} runs find the best answer, π above {ENOUGH} within "
            f"{MOST_UPDATES} updates, and earn above 7 of 8 on average: {found}.",
            all(helped[key] >= MOST and earned[key] > 7 for key in helped),
        ),
        Check(
            f"From single samples without a baseline, {alone:.2f} of the {RUNS} runs find it; below 0.5 expected.",
            alone < 0.5,
        ),
        Check(
            f"From {MANY} samples per update, the median run takes {slow:.0f} updates without a baseline and fewer, "
            f"{fast:.0f}, with the running mean. With leave-one-out it takes {relative:.0f}.",
            slow > fast,
        ),
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
