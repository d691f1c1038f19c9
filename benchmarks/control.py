"""CartPole with a small MLP: each way of doing the same training faster, against the plain way."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from agents.estimators.returns import return_to_go
from agents.policies import ControlPolicy
from agents.policies.control.numpy_actor import NumpyActor
from agents.rollouts.collector import Collector
from agents.rollouts.envs.waiting_envs import WaitingCartPole, WaitingVectorEnv
from agents.rollouts.seed_stack import Stack

from .measure import Row, alternate, clock, timed_functions
from .sb3 import ENV, Watch, greedy_return, our_agent

SLOTS, ROLLOUTS = 16, 20
SEEDS, ALONE = 64, 4  # seeds trained together, and those of them that are also trained one by one
MOST_STEPS = 100_000  # of a seed that does not get there
SUMS = (16, 500)  # episodes and steps


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for each technique."""
    return [_collecting("acting in numpy", True, pairs), _collecting("slots stepped together", False, pairs),
            _collector_alone(pairs), _sums(pairs), _seeds(pairs)]  # fmt: skip


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
    parts = _collector(in_numpy, together)
    with clock() as seconds:
        steps = _steps_of(*parts)
    return seconds() / steps * 1e6


def _steps_of(collector: Collector, policy: ControlPolicy, generator: torch.Generator) -> int:
    """Collect some rollouts; return how many steps they took."""
    rollouts: list[Any] = [collector.collect(policy, SLOTS, generator) for _ in range(ROLLOUTS)]
    return sum(int(rollout.lengths.max()) for rollout in rollouts)


def _collector_alone(pairs: int) -> Row:
    """Say what the collector adds to Gymnasium's step and the actor, for short episodes: those of random weights."""
    own: list[float] = []
    whole: list[float] = []
    parts: dict[str, float] = {}
    for _ in range(pairs):
        made = _collector(True, True)
        watched = (CartPoleVectorEnv, "step", "Gymnasium"), (NumpyActor, "act", "the actor")
        with timed_functions(*watched) as spent, clock() as seconds:
            steps = _steps_of(*made)
        whole.append(seconds() / steps * 1e6)
        parts = {part: took / steps * 1e6 for part, took in spent.items()}
        own.append(whole[-1] - sum(parts.values()))
    others = ", ".join(f"{part} {took:.0f} us" for part, took in parts.items())
    return Row.of(f"the collector alone, {SLOTS} slots; peer: a whole step", own, whole, "us/step", others)


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
    """Train seeds until they solve CartPole, which is evaluated outside the timing as in `sb3.py`."""
    runs: dict[str, list[tuple[list[float], bool, float]]] = {}

    def together() -> float:
        loops = [lambda seed=seed: _train(seed) for seed in range(SEEDS)]
        with clock() as seconds:
            ended = {i: result for i, result, _ in Stack(loops).run()}
        runs["together"] = [ended[i] for i in range(SEEDS)]
        return (seconds() - sum(evaluating for *_, evaluating in runs["together"])) / SEEDS

    def alone() -> float:
        with clock() as seconds:
            runs["alone"] = [_train(seed) for seed in range(ALONE)]
        return (seconds() - sum(evaluating for *_, evaluating in runs["alone"])) / ALONE

    taken = alternate(together, alone, pairs, warm_up=0)
    curves, alone_curves = ([curve for curve, *_ in runs[how]] for how in ("together", "alone"))
    solved = sum(is_solved for _, is_solved, _ in runs["together"])
    quality = f"{solved} of {SEEDS} solved; the same curves: {curves[:ALONE] == alone_curves}"
    return Row.of(f"{SEEDS} seeds in one process, each until it is solved", *taken, "s/seed", quality)


def _train(seed: int) -> tuple[list[float], bool, float]:
    """Train an agent until it is solved; return its curve, whether it is, and the seconds of the evaluations."""
    agent = our_agent(seed)
    evaluating = 0.0

    def evaluated() -> float:
        nonlocal evaluating
        with clock() as seconds:
            score = greedy_return(agent)
        evaluating += seconds()
        return score

    watch, curve = Watch(evaluated), []
    for _, figures in agent.updates(MOST_STEPS):
        curve.append(figures["rollout/ep_rew_mean"])
        if not watch.look(agent.num_timesteps):
            break
    return curve, bool(watch.solved_at), evaluating
