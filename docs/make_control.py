"""Train the control recipes of configs/ and stable-baselines3's PPO in turn; write docs/control.json and the table.

python docs/make_control.py --seeds 5                  # all; runs that are in control.json already are kept
python docs/make_control.py --seeds 5 --only Acrobot-v1 --who ours
python docs/make_control.py --seeds 0                  # only write the table again
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "docs" / "control.json", ROOT / "docs" / "control.md"
BEGIN, END = "<!-- made by make_control.py -->", "<!-- end -->"
HEAD = (
    "| environment | zoo's reward | agent | seeds that reach it | mean reward | steps | processor seconds |",
    "|---|---|---|---|---|---|---|",
)
ZOO = {  # benchmark.md of rl-baselines3-zoo: agent, mean and standard deviation of an episode's reward
    "Acrobot-v1": ("A2C", -83.353, 17.213),
    "MountainCar-v0": ("PPO", -110.423, 19.473),
    "Pendulum-v1": ("PPO", -172.225, 104.159),
}
PEER: dict[str, tuple[int, bool, int, dict[str, Any]]] = {  # hyperparams/ppo.yml: steps, normalize, n_envs, the rest
    "Acrobot-v1": (1_000_000, True, 16, {"n_steps": 256, "gae_lambda": 0.94, "n_epochs": 4, "gamma": 0.99}),
    "MountainCar-v0": (1_000_000, True, 16, {"n_steps": 16, "gae_lambda": 0.98, "n_epochs": 4, "gamma": 0.99}),
    "Pendulum-v1": (
        100_000, False, 4,
        {
            "n_steps": 1024, "gae_lambda": 0.95, "n_epochs": 10, "gamma": 0.9, "learning_rate": 1e-3,
            "use_sde": True, "sde_sample_freq": 4,
        },
    ),
}  # fmt: skip
AGENTS = ("ours", "stable-baselines3")
EPISODES = 500  # of the last evaluation, greedy


def main() -> None:
    """Run what is missing, ours and theirs in turn, then write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed, for several commands at a time")
    parser.add_argument("--only", choices=ZOO, default=None)
    parser.add_argument("--who", choices=AGENTS, default=None, help="one side alone")
    parser.add_argument("--peer", nargs=2, metavar=("ENV", "SEED"), help="train stable-baselines3's PPO, print JSON")
    given = parser.parse_args()
    if given.peer:
        print(json.dumps(peer(given.peer[0], int(given.peer[1]))))
        return
    for seed in range(given.first, given.seeds):
        for env in ZOO if given.only is None else [given.only]:
            for who in AGENTS if given.who is None else [given.who]:
                keep(env, who, seed)
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")


def keep(env: str, who: str, seed: int) -> None:
    """Run one seed unless it has been run; the file is read again each time, so several commands can fill it."""
    if str(seed) not in results().get(env, {}).get(who, {}):
        figures = {"ours": ours, "stable-baselines3": theirs}[who](env, seed)
        kept = results()
        kept.setdefault(env, {}).setdefault(who, {})[str(seed)] = figures
        RESULTS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        print(env, who, seed, figures, file=sys.stderr, flush=True)


def results() -> dict[str, Any]:
    """Return the runs so far: environment, agent, seed."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}


def ours(env: str, seed: int) -> dict[str, float]:
    """Train as the recipe says, with one core."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "_rlenv_scripts", "train", "--config", str(ROOT / "configs" / f"{env}.yaml")]
        command += ["--seed", str(seed), "--device", "cpu", "--json", "--log-dir", f"{folder}/run"]
        result, seconds = timed(command)
    return {"reward": result["eval"]["mean_reward"], "steps": result["timesteps"], "seconds": seconds}


def theirs(env: str, seed: int) -> dict[str, float]:
    """Train stable-baselines3's PPO in a process of its own, with one core."""
    result, seconds = timed([sys.executable, __file__, "--peer", env, str(seed)])
    return {**result, "seconds": seconds}


def timed(command: list[str]) -> tuple[dict[str, Any], float]:
    """Return the JSON object on the last line that a command prints, and the processor seconds of its process."""
    before = used()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return json.loads(done.stdout.splitlines()[-1]), round(used() - before, 1)


def used() -> float:
    """Return the processor seconds of all processes that have been waited for."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def peer(env: str, seed: int) -> dict[str, float]:
    """Train with the zoo's settings, and evaluate the last policy on new episodes with the statistics of training."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    steps, normalize, slots, settings = PEER[env]
    envs, test = (make_vec_env(env, n_envs=n, seed=s) for n, s in ((slots, seed), (100, seed + 1000)))
    if normalize:
        envs = VecNormalize(envs, gamma=settings["gamma"])
    agent = PPO("MlpPolicy", envs, seed=seed, device="cpu", **settings)
    agent.learn(steps)
    if normalize:
        test = VecNormalize(test, training=False, norm_reward=False)
        test.obs_rms = envs.obs_rms
    reward, _ = evaluate_policy(agent, test, EPISODES)
    return {"reward": float(reward), "steps": agent.num_timesteps}


def page(text: str) -> str:
    """Return the page with the table of the results between its two marks."""
    before, rest = text.split(BEGIN)
    rows = [row(env, who, list(runs.values())) for env, by in sorted(results().items()) for who, runs in by.items()]
    return "\n".join([before + BEGIN, "", *HEAD, *rows, "", END + rest.split(END)[1]])


def row(env: str, who: str, runs: list[dict[str, float]]) -> str:
    """Return the row of one agent in one environment: medians of steps and seconds, mean and range of rewards."""
    zoos, mean, deviation = ZOO[env]
    rewards = [run["reward"] for run in runs]
    reached = sum(reward >= mean for reward in rewards)
    spread = f"{statistics.mean(rewards):.1f} ({min(rewards):.1f} to {max(rewards):.1f})"
    steps, seconds = (statistics.median(run[key] for run in runs) for key in ("steps", "seconds"))
    named = "ours" if who == "ours" else "PPO of stable-baselines3"
    zoo = f"{mean:.1f} ± {deviation:.1f} ({zoos})"
    return f"| `{env}` | {zoo} | {named} | {reached} of {len(runs)} | {spread} | {steps:,.0f} | {seconds:.0f} |"


if __name__ == "__main__":
    main()
