"""What type checkers know about constructors: mypy fails on this file if it accepts one of the wrong calls."""

from collections.abc import Callable

import torch

from agents import DAPO, PPO, Agent, Reinforce
from agents.policies import Policy
from agents.settings import setting


class Own(PPO):
    """An agent with a setting of its own."""

    factor: float = setting(default=0.5, range="(0, 1]", help="Of nothing.")


def right(rate: Callable[[float], float]) -> tuple[Policy, torch.device, float, int]:
    """Take settings of each class in the line, functions and None."""
    agent = Own("MlpPolicy", "CartPole-v1", factor=0.1, clip_range=rate, gamma=None, kl_coef=0.1, device="cpu")
    DAPO("tiny", "TextGen-v0", env_kwargs={"verifier": "arith"}, max_rounds=1, num_envs=2)
    return agent.policy, agent.device, agent.gamma + agent.factor, agent.episodes_per_update


def wrong() -> list[Agent]:
    """Misspell a setting, take one of another class, leave out the environment, and take a value of another type."""
    return [
        Own("MlpPolicy", "CartPole-v1", factr=0.1),  # type: ignore[call-arg]
        Reinforce("MlpPolicy", "CartPole-v1", clip_range=0.1),  # type: ignore[call-arg]
        PPO("MlpPolicy"),  # type: ignore[call-arg]
        PPO("MlpPolicy", "CartPole-v1", kl_coef="a lot"),  # type: ignore[arg-type]
    ]
