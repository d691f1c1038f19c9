"""CartPole-v1 to a mean return of 475 over 100 episodes: ours, and stable-baselines3 with the RL zoo's settings."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from agents import ReinforceBaseline, make_envs

from .measure import Row, clock

ENV, THRESHOLD, EPISODES, EVERY = "CartPole-v1", 475.0, 100, 2_500
SETTINGS = {"learning_rate": 0.02, "adam_beta1": 0.5, "gamma": 0.995}  # tuned on other seeds, as the peers' are
PEERS: dict[str, tuple[Any, int, dict[str, Any]]] = {  # rl-baselines3-zoo: class, the zoo's steps, settings
    "PPO": (PPO, 100_000, {
        "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0,
        "learning_rate": lambda left: left * 1e-3, "clip_range": lambda left: left * 0.2,
    }),
    "A2C": (A2C, 500_000, {"ent_coef": 0.0}),
}  # fmt: skip


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for each peer, over twice as many seeds as there are pairs."""
    seeds = range(2 * pairs)
    taken: dict[str, list[tuple[float, int, bool]]] = {who: [] for who in ("ours", *PEERS)}
    for seed in seeds:
        taken["ours"].append(_ours(seed))
        for peer in PEERS:
            taken[peer].append(_theirs(peer, seed))
    return [_row(peer, taken["ours"], taken[peer]) for peer in PEERS]


def _row(peer: str, ours: list[tuple[float, int, bool]], theirs: list[tuple[float, int, bool]]) -> Row:
    def solved(runs: list[tuple[float, int, bool]]) -> str:
        median = statistics.median(steps for _, steps, _ in runs)
        return f"{sum(done for _, _, done in runs)} of {len(runs)} runs in {median:,.0f} steps"

    quality = f"ours {solved(ours)}, {peer} {solved(theirs)} (medians; an unsolved run counts with all its time)"
    own, other = ([seconds for seconds, _, _ in runs] for runs in (ours, theirs))
    return Row.of(
        f"REINFORCE with baseline, against {peer}", own, other, "s to 475", quality,
        floor=_bare_seconds(statistics.median(n for _, n, _ in ours)),
        steps=[n for _, n, _ in ours], peer_steps=[n for _, n, _ in theirs],
    )  # fmt: skip


class Watch:
    """Evaluates every `EVERY` steps, outside the timing, until the threshold is reached."""

    def __init__(self, evaluate: Callable[[], float]) -> None:
        self.evaluate = evaluate
        self.next, self.solved_at, self.seconds = EVERY, 0, 0.0
        self.started = time.perf_counter()

    def look(self, steps: int) -> bool:
        """Return whether to go on."""
        if steps < self.next:
            return True
        self.seconds += time.perf_counter() - self.started
        self.next = steps + EVERY
        if self.evaluate() >= THRESHOLD:
            self.solved_at = steps
            return False
        self.started = time.perf_counter()
        return True


def our_agent(seed: int) -> ReinforceBaseline:
    """Return our agent before its training."""
    return ReinforceBaseline("MlpPolicy", ENV, **SETTINGS, seed=seed, device="cpu")  # type: ignore[arg-type]


def greedy_return(agent: ReinforceBaseline) -> float:
    """Return the mean return of our agent's greedy policy."""
    test = make_envs(ENV, EPISODES, None)
    metrics, _ = agent.evaluate(test, EPISODES, seed=agent.seed + 1000)
    return float(metrics["mean_reward"])


def _ours(seed: int) -> tuple[float, int, bool]:
    """Return seconds, steps and whether it was solved."""
    agent = our_agent(seed)
    watch = Watch(lambda: greedy_return(agent))
    agent.learn(1_000_000, callback=lambda local, rest: watch.look(agent.num_timesteps))
    return watch.seconds, agent.num_timesteps, bool(watch.solved_at)


class _WatchCallback(BaseCallback):
    """The same for stable-baselines3."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def _on_step(self) -> bool:
        return self.watch.look(self.num_timesteps)


def _bare_seconds(steps: float) -> float:
    """Return the seconds of the environment alone for as many steps, in as many slots as our agent has."""
    slots = our_agent(seed=0).env.num_envs
    envs = make_envs(ENV, slots, {"vectorization_mode": "sync"})
    envs.reset(seed=0)
    actions = np.zeros(envs.num_envs, dtype=np.int64)
    with clock() as seconds:
        for _ in range(int(steps / envs.num_envs)):
            envs.step(actions)
    return seconds()


def _theirs(peer: str, seed: int) -> tuple[float, int, bool]:
    cls, steps, settings = PEERS[peer]
    model = cls("MlpPolicy", make_vec_env(ENV, n_envs=8, seed=seed), seed=seed, device="cpu", **settings)
    test = make_vec_env(ENV, n_envs=EPISODES, seed=seed + 1000)
    watch = Watch(lambda: float(np.mean(evaluate_policy(model, test, EPISODES, warn=False)[0])))
    model.learn(steps, callback=_WatchCallback(watch))
    if not watch.solved_at:
        watch.look(10 * steps)
    return watch.seconds, model.num_timesteps, bool(watch.solved_at)
