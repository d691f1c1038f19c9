"""PPO and VAPO on answers of up to 32 tokens that are rewarded once, at their end.

    python examples/long_answers.py    # 12 runs of the tiny preset; --help for sizes

An answer should spell the alphabet of four letters over and over, from the letter that the prompt gives. The reward is
the share of its 32 places that hold the letter after the one before, so stopping early costs.
"""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from typing import Any

import gymnasium as gym
import torch

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv.agents import PPO, VAPO, Agent
from rlenv.verifiers import FunctionVerifier

LETTERS, LONGEST = "abcd", 32
AGENTS: dict[str, tuple[type[Agent], dict[str, Any]]] = {
    "ppo": (PPO, {}),
    "vapo, α = 0.05": (VAPO, {}),
    "vapo, α = 0.5": (VAPO, {"length_alpha": 0.5}),
    "vapo, α = 0.5, 4 updates of warm-up": (VAPO, {"length_alpha": 0.5, "value_warmup": 4}),
}


def share_in_order(prompts: list[str], completions: list[str]) -> list[float]:
    """Return the share of the places that hold the letter after the one before."""
    following = dict(zip(LETTERS, LETTERS[1:] + LETTERS[:1], strict=True))
    texts = (prompt + completion for prompt, completion in zip(prompts, completions, strict=True))
    return [sum(following.get(a) == b for a, b in pairwise(text)) / LONGEST for text in texts]


def train(cls: type[Agent], settings: dict[str, Any], updates: int, seed: int) -> list[float]:
    """Return the mean reward of each update's 64 answers."""
    verifier = FunctionVerifier(share_in_order, alphabet=LETTERS)
    envs = gym.make_vec(
        "TextGen-v0", num_envs=64, verifier=verifier, problems=list(LETTERS), test_fraction=0.0, max_new_tokens=LONGEST
    )
    agent = cls("tiny", envs, episodes_per_update=64, seed=seed, device="cpu", **settings)
    run = agent.updates(total_episodes=64 * updates)
    return [metrics["rollout/ep_rew_mean"] for _, metrics in run]


def main() -> None:
    """Train every agent with every seed; print the mean reward after each quarter, and that of each seed at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for name, (cls, settings) in AGENTS.items():
        curves = torch.tensor([train(cls, settings, options.updates, seed) for seed in range(options.seeds)])
        quarters = curves.view(options.seeds, 4, -1)[:, :, -3:].mean(2)  # [seeds, 4]
        ends = quarters[:, -1]
        figures = {
            "quarters": [round(float(x), 3) for x in quarters.mean(0)],
            "seeds": [round(float(x), 3) for x in ends],
        }
        print(json.dumps({"agent": name} | figures, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
