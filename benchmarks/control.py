"""CartPole with a small MLP: each way of doing the same training faster, against the plain way."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch

from agents import ReinforceBaseline
from agents.collector import Collector
from agents.estimators.returns import return_to_go
from agents.policies import ControlPolicy
from agents.stacked import Stack
from agents.waiting_envs import WaitingCartPole, WaitingVectorEnv

from .measure import Row, alternate, clock

ENV, SLOTS, ROLLOUTS = "CartPole-v1", 16, 20
SEEDS, ALONE, STEPS = 64, 4, 10_000  # seeds trained together, seeds trained one by one, steps of each
SUMS = (16, 500)  # episodes and steps


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for each technique."""
    return [_collecting("acting in numpy", True, pairs), _collecting("slots stepped together", False, pairs),
            _sums(pairs), _seeds(pairs)]  # fmt: skip


def _collecting(label: str, acting: bool, pairs: int) -> Row:
    """Compare a step of collecting with both savings, and without the one: of acting, or of the environment."""
    taken = alternate(lambda: _step(True, True), lambda: _step(not acting, acting), pairs)
    same = _rollout(True, True).actions.equal(_rollout(not acting, acting).actions)
    return Row.of(f"{label}, {SLOTS} slots", *taken, "us/step", f"the same actions: {same}")


def _collector(in_numpy: bool, together: bool) -> tuple[Collector, ControlPolicy, torch.Generator]:
    kind = WaitingCartPole if together else WaitingVectorEnv
    envs = kind([lambda: gym.make(ENV)] * SLOTS)
    torch.manual_seed(0)
    policy = ControlPolicy(envs.single_observation_space, envs.single_action_space, act_in_numpy=in_numpy)
    collector = Collector(envs, torch.device("cpu"))
    collector.seed(0)
    return collector, policy, torch.Generator().manual_seed(0)


def _rollout(in_numpy: bool, together: bool) -> Any:
    collector, policy, generator = _collector(in_numpy, together)
    return collector.collect(policy, SLOTS, generator)


def _step(in_numpy: bool, together: bool) -> float:
    """Return the microseconds of a step in which all slots act, bookkeeping included."""
    collector, policy, generator = _collector(in_numpy, together)
    steps = 0
    with clock() as seconds:
        for _ in range(ROLLOUTS):
            rollout: Any = collector.collect(policy, SLOTS, generator)
            steps += int(rollout.lengths.max())
    return seconds() / steps * 1e6


def _sums(pairs: int) -> Row:
    rewards, mask = torch.rand(SUMS), torch.ones(SUMS, dtype=torch.bool)

    def doubling() -> float:
        with clock() as seconds:
            return_to_go(rewards, mask, 0.99)
        return seconds() * 1e6

    def one_by_one() -> float:
        with clock() as seconds:
            _step_by_step(rewards, 0.99)
        return seconds() * 1e6

    gap = float((return_to_go(rewards, mask, 0.99) - _step_by_step(rewards, 0.99)).abs().max())
    taken = alternate(doubling, one_by_one, 20 * pairs)
    return Row.of(f"returns of {SUMS[0]} x {SUMS[1]} steps, by doubling", *taken, "us", f"equal to {gap:.0e}")


def _step_by_step(rewards: torch.Tensor, gamma: float) -> torch.Tensor:
    returns, following = torch.zeros_like(rewards), torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        following = rewards[:, t] + gamma * following
        returns[:, t] = following
    return returns


def _seeds(pairs: int) -> Row:
    curves: dict[str, list[list[float]]] = {}

    def together() -> float:
        loops = [lambda seed=seed: _train(seed) for seed in range(SEEDS)]
        with clock() as seconds:
            ended = {i: result for i, result, _ in Stack(loops).run()}
        curves["together"] = [ended[i] for i in range(ALONE)]
        return seconds() / SEEDS

    def alone() -> float:
        with clock() as seconds:
            curves["alone"] = [_train(seed) for seed in range(ALONE)]
        return seconds() / ALONE

    taken = alternate(together, alone, pairs, warm_up=0)
    same = curves["together"] == curves["alone"]
    label = f"{SEEDS} seeds in one process, {STEPS:,} steps each"
    return Row.of(label, *taken, "s/seed", f"the same curves: {same}")


def _train(seed: int) -> list[float]:
    """Train an agent; return its curve."""
    agent = ReinforceBaseline("MlpPolicy", ENV, seed=seed, device="cpu")
    return [figures["rollout/ep_rew_mean"] for _, figures in agent.updates(STEPS)]
