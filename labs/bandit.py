"""Which way does one sample push the policy, and what does a baseline change?

docs/labs/bandit.md describes the setup and what follows for choosing an algorithm.
"""

from __future__ import annotations

from typing import Any

import torch

from agents import Agent, Reinforce, ReinforceBaseline
from agents.exact import TablePolicy, World, WorldEnv, true_gradient

from .base import Check, Finding
from .enumerable import episodes, gradients, make_agent

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
MOST_ERRORS = 3.0  # standard errors by which training has to differ
CLAIM = (
    "On average both gradients are the same. Without a baseline every sampled answer is pushed up, and from one sample "
    "per update, training then mostly misses the best answer; with a baseline it finds it."
)


def run(seed: int) -> Finding:
    """Look at single samples exactly, then train."""
    pushes = {name: single_samples(name) for name in (PLAIN, RUNNING)}
    curves = {(count, name): train(name, count, seed) for count, name in TRAINED}
    rows = [row for (count, name), curve in curves.items() for row in _rows(count, name, curve)]
    figures = {
        "one_sample": {name: _push_figures(push) for name, push in pushes.items()},
        "training": [_summary(count, name, curve) for (count, name), curve in curves.items()],
        "runs": RUNS,
    }
    checks = [*_push_checks(pushes), *_training_checks(curves)]
    return Finding(CLAIM, checks, rows, figures, lambda figure: _draw(figure, pushes, rows))


# One sample.


def single_samples(name: str) -> torch.Tensor:
    """Return the gradient of the agent's loss for an update of one sample, for each answer it can be [3, 3].

    The baseline, if any, already equals the policy's mean reward.
    """
    cls, settings = AGENTS[name]
    agent = make_agent(cls, WORLD, PROBABILITIES.log()[None], copies=3, **settings)
    if settings:
        agent.load_state_dict({"mean": torch.tensor([MEAN], dtype=torch.float64)})
    answers = torch.arange(3)
    rollout = episodes(agent.policy, WORLD, answers, REWARDS, copies=answers)
    return 3 * gradients(agent, agent.prepare(rollout))[:, 0]  # the loss is a mean over the three


def after_a_step(push: torch.Tensor) -> torch.Tensor:
    """Return the probabilities after a small step along each sample's gradient, less those before [3, 3]."""
    return (PROBABILITIES.log() + NUDGE * push).softmax(-1) - PROBABILITIES


def helps_the_best(push: torch.Tensor) -> float:
    """Return the probability of a sample after which the best answer is likelier."""
    return float(PROBABILITIES[after_a_step(push)[:, BEST] > 0].sum())


def variance(push: torch.Tensor) -> float:
    """Return the trace of the covariance of one sample's gradient."""
    mean = PROBABILITIES @ push
    return float(PROBABILITIES @ push.square().sum(1) - mean.square().sum())


def _push_figures(push: torch.Tensor) -> dict[str, Any]:
    return {
        "gradient_by_answer": [[round(value, 6) for value in row] for row in push.tolist()],
        "expected_gradient": [round(value, 6) for value in (PROBABILITIES @ push).tolist()],
        "helps_the_best": round(helps_the_best(push), 6),
        "variance": round(variance(push), 6),
    }


def _push_checks(pushes: dict[str, torch.Tensor]) -> list[Check]:
    by_hand = PROBABILITIES * (REWARDS - MEAN)
    by_sum = true_gradient(WORLD, PROBABILITIES.log()[None], WORLD.at_the_end(REWARDS))[0]
    off = max(float((found - by_hand).abs().max()) for found in (by_sum, *(PROBABILITIES @ p for p in pushes.values())))
    own = {name: after_a_step(push).diagonal() > 0 for name, push in pushes.items()}
    helped = {name: helps_the_best(push) for name, push in pushes.items()}
    spread = {name: variance(push) for name, push in pushes.items()}
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
    curve = torch.zeros(RUNS, MOST_UPDATES + 1, 3, dtype=torch.float64)
    for number in range(RUNS):
        policy = TablePolicy(PROBABILITIES.log()[None])
        envs = WorldEnv(WORLD, WORLD.at_the_end(REWARDS[None]), num_envs=count)
        agent = cls(
            policy, envs, episodes_per_update=count, learning_rate=RATE,
            lr_schedule="constant", seed=seed * RUNS + number, device="cpu", **settings,
        )  # fmt: skip
        _learn(agent, policy, curve[number])
    return curve


def _learn(agent: Agent, policy: TablePolicy, curve: torch.Tensor) -> None:
    def watch(local: dict[str, Any], world: dict[str, Any]) -> bool:
        now = policy.logits.detach()[0, 0].softmax(-1)
        curve[agent.num_updates :] = now
        return bool(now[BEST] < ENOUGH)

    agent.learn(total_episodes=MOST_UPDATES * agent.episodes_per_update, callback=watch, log_interval=MOST_UPDATES + 1)
    curve[agent.num_updates :] = policy.logits.detach()[0, 0].softmax(-1)


def updates_needed(curve: torch.Tensor) -> torch.Tensor:
    """Return the updates before π(best) reached 0.95 [runs]; one more than were allowed where it did not."""
    return (curve[:, :, BEST] < ENOUGH).sum(1).double()


def rank_statistic(larger: torch.Tensor, smaller: torch.Tensor) -> float:
    """Return by how many standard errors one sample [n] exceeds another [n] in rank.

    (U - n²/2) / √(n² (2n + 1) / 12), where U counts the pairs in which it does (Mann & Whitney 1947), ties by half.
    """
    n = len(larger)
    gap = larger[:, None] - smaller  # [n, n]
    exceeds = float((gap > 0).sum() + 0.5 * (gap == 0).sum())
    return (exceeds - n * n / 2) / (n * n * (2 * n + 1) / 12) ** 0.5


def _training_checks(curves: dict[tuple[int, str], torch.Tensor]) -> list[Check]:
    reached = {key: float((updates_needed(curve) <= MOST_UPDATES).double().mean()) for key, curve in curves.items()}
    needed = {key: updates_needed(curve) for key, curve in curves.items()}
    share = reached[FEW, PLAIN]
    lead = (reached[FEW, RUNNING] - share) / max(share * (1 - share) / RUNS, 1 / RUNS**2) ** 0.5
    slow, fast = needed[MANY, PLAIN], needed[MANY, RUNNING]
    faster = rank_statistic(slow, fast)
    helped = [key for key in TRAINED if key[1] != PLAIN]
    earned = {key: float((curves[key][:, -1] @ REWARDS).mean()) for key in helped}
    found = ", ".join(f"{reached[key]:.2f} ({key[1]}, {key[0]} per update; reward {earned[key]:.2f})" for key in helped)
    return [
        Check(
            f"With a baseline, at least {MOST} of the {RUNS} runs find the best answer, π above {ENOUGH} within "
            f"{MOST_UPDATES} updates, and earn above 7 of 8 on average: {found}.",
            all(reached[key] >= MOST and earned[key] > 7 for key in helped),
        ),
        Check(
            f"From single samples without a baseline, {share:.2f} of the {RUNS} runs find it; {lead:.1f} standard "
            f"errors fewer than with it, at least {MOST_ERRORS} expected.",
            lead > MOST_ERRORS,
        ),
        Check(
            f"From {MANY} samples per update, the median run takes {slow.median():.0f} updates without a baseline and "
            f"{fast.median():.0f} with the running mean; {faster:.1f} standard errors by ranks (Mann-Whitney), at "
            f"least {MOST_ERRORS} expected. With leave-one-out it takes {needed[MANY, RELATIVE].median():.0f}.",
            faster > MOST_ERRORS,
        ),
    ]


def _summary(count: int, name: str, curve: torch.Tensor) -> dict[str, Any]:
    needed = updates_needed(curve)
    found = needed <= MOST_UPDATES
    return {
        "samples": count,
        "baseline": name,
        "found_the_best": int(found.sum()),
        "median_updates_of_those": float(needed[found].median()) if found.any() else None,
        "expected_reward_at_the_end": round(float((curve[:, -1] @ REWARDS).mean()), 3),
    }


def _rows(count: int, name: str, curve: torch.Tensor) -> list[dict[str, Any]]:
    earned, best = curve @ REWARDS, curve[:, :, BEST]  # [runs, updates + 1]
    return [
        {
            "samples": count,
            "baseline": name,
            "update": update,
            "expected_reward": float(earned[:, update].mean()),
            "expected_reward_low": float(earned[:, update].quantile(0.1)),
            "expected_reward_high": float(earned[:, update].quantile(0.9)),
            "probability_of_best": float(best[:, update].mean()),
            "found_the_best": int((best[:, update] >= ENOUGH).sum()),
        }
        for update in range(curve.shape[1])
    ]


def _draw(figure: Any, pushes: dict[str, torch.Tensor], rows: list[dict[str, Any]]) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.3))
    answers = range(len(REWARDS))
    colours = {PLAIN: "tab:orange", RUNNING: "tab:blue", RELATIVE: "tab:green"}
    for place, (name, push) in zip((-0.2, 0.2), pushes.items(), strict=True):
        change = (after_a_step(push)[:, BEST] / NUDGE).tolist()
        words = "no baseline" if name == PLAIN else "baseline 4.9"
        left.bar([answer + place for answer in answers], change, 0.4, color=colours[name], label=words)
    left.axhline(0, color="black", lw=0.8)
    ticks = [f"earns {r:g}\n(p = {p:g})" for r, p in zip(REWARDS.tolist(), PROBABILITIES.tolist(), strict=True)]
    left.set_xticks(answers, ticks)
    left.set(xlabel="the answer sampled", ylabel="change of π(best) per unit of step")
    left.set_title("what one sample does to the best answer")
    left.legend()
    for count, name in TRAINED:
        own = [row for row in rows if row["samples"] == count and row["baseline"] == name]
        updates, earned = zip(*[(row["update"], row["expected_reward"]) for row in own], strict=True)
        label = f"{name}, {count} sample{'s' * (count > 1)} per update"
        right.plot(updates, earned, "--" if count == FEW else "-", color=colours[name], label=label)
    right.axhline(8, color="grey", lw=0.8)
    right.set(xlabel="updates", ylabel="expected reward", ylim=(2.9, 8.2), title=f"training: mean of {RUNS} runs")
    right.grid(alpha=0.3)
    right.legend(loc="center right")
