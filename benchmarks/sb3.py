"""CartPole-v1 to a mean return of 475 over 100 episodes: ours, and stable-baselines3 with the RL zoo's settings."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from rlenv.agents import ReinforceBaseline, make_envs

from .measure import Case

ENV, THRESHOLD, EPISODES, EVERY = "CartPole-v1", 475.0, 100, 2_500
SETTINGS: dict[str, Any] = {"learning_rate": 0.02, "adam_beta1": 0.5, "gamma": 0.995}  # tuned on other seeds
PEERS: dict[str, tuple[Any, int, dict[str, Any]]] = {  # rl-baselines3-zoo: class, the zoo's steps, settings
    "PPO": (PPO, 100_000, {
        "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0,
        "learning_rate": lambda left: left * 1e-3, "clip_range": lambda left: left * 0.2,
    }),
    "A2C": (A2C, 500_000, {"ent_coef": 0.0}),
}  # fmt: skip
Run = tuple[float, int, bool]  # seconds, steps, and whether it was solved


def cases(name: str) -> Iterator[Case]:
    """Yield a case for each peer; each pair is a seed."""
    ours = functools.cache(_ours)  # the same runs beside both peers
    for peer in PEERS:
        runs: list[tuple[Run, Run]] = []

        def pair(peer: str = peer, runs: list[tuple[Run, Run]] = runs) -> tuple[float, float]:
            runs.append((ours(len(runs)), _theirs(peer, len(runs))))
            return runs[-1][0][0], runs[-1][1][0]

        quality = functools.partial(_solved, peer, runs)
        yield Case(f"REINFORCE with baseline, against {peer}", "s to 475", pair, quality, warm_up=0)


def _solved(peer: str, runs: list[tuple[Run, Run]]) -> str:
    said = []
    for side, name in enumerate(("ours", peer)):
        steps = statistics.median(run[side][1] for run in runs)
        said.append(f"{name} {sum(run[side][2] for run in runs)} of {len(runs)} runs in {steps:,.0f} steps")
    return f"{', '.join(said)} (medians; an unsolved run counts with all its time)"


class Watch:
    """Evaluates every `EVERY` steps, outside the timing, until the threshold is reached."""

    def __init__(self, evaluate: Callable[[], float]) -> None:
        self.evaluate = evaluate
        self.next, self.solved, self.seconds = EVERY, False, 0.0
        self.started = time.perf_counter()

    def look(self, steps: int) -> bool:
        """Return whether to go on."""
        if steps < self.next:
            return True
        self.seconds += time.perf_counter() - self.started
        self.next = steps + EVERY
        self.solved = self.evaluate() >= THRESHOLD
        self.started = time.perf_counter()
        return not self.solved


def _ours(seed: int) -> Run:
    agent = ReinforceBaseline("MlpPolicy", ENV, **SETTINGS, seed=seed, device="cpu")
    test = make_envs(ENV, EPISODES, None)
    watch = Watch(lambda: float(agent.evaluate(test, EPISODES, seed=seed + 1000)[0]["mean_reward"]))
    agent.learn(1_000_000, callback=lambda local, rest: watch.look(agent.num_timesteps))
    return watch.seconds, agent.num_timesteps, watch.solved


def _theirs(peer: str, seed: int) -> Run:
    cls, steps, settings = PEERS[peer]
    model = cls("MlpPolicy", make_vec_env(ENV, n_envs=8, seed=seed), seed=seed, device="cpu", **settings)
    test = make_vec_env(ENV, n_envs=EPISODES, seed=seed + 1000)
    watch = Watch(lambda: float(np.mean(evaluate_policy(model, test, EPISODES, warn=False)[0])))
    model.learn(steps, callback=lambda local, rest: watch.look(model.num_timesteps))
    if not watch.solved:
        watch.look(10 * steps)
    return watch.seconds, model.num_timesteps, watch.solved
