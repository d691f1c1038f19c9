"""What type checkers know about agents and configs: mypy fails here if it accepts one of the wrong lines."""

from collections.abc import Callable

import torch

from rlenv import TrainConfig
from rlenv._settings import setting
from rlenv.agents import PPO, Agent
from rlenv.agents.policies import Policy


class Own(PPO):
    """An agent with a setting of its own."""

    factor: float = setting(default=0.5, help="Of nothing.", above=0, high=1)


def right(rate: Callable[[float], float]) -> tuple[Policy, torch.device, float, int]:
    """Take policies and agents by name, agents by class, a reward function, and settings as they are kept."""
    TrainConfig(agent="ppo", verifier=len, episodes=8, settings={"kl_coef": 0.1}, track="wandb", log_dir="run")
    TrainConfig(agent=Own, settings={"factor": 0.1, "clip_range": 0.3}, task="gsm8k", report=False)
    agent = Own("MlpPolicy", "CartPole-v1", factor=0.1, clip_range=rate, gamma=None, kl_coef=0.1, device="cpu")
    return agent.policy, agent.device, agent.gamma + agent.factor, agent.episodes_per_update


def wrong(agent: Own) -> Agent:
    """Misspell names, take values of other types or that are not allowed, and leave out the environment."""
    name: str = agent.factor  # type: ignore[assignment]
    print(name, agent.gama)  # type: ignore[attr-defined]
    PPO("MlpPolicy", "CartPole-v1", gama=0.5)  # type: ignore[call-arg]
    PPO("MlpPolicy", "CartPole-v1", num_epochs="two")  # type: ignore[arg-type]
    PPO("MlpPolicy", "CartPole-v1", kl_in="lost")  # type: ignore[arg-type]
    Own("MlpPolicy", "CartPole-v1", factor="half")  # type: ignore[arg-type]
    TrainConfig(episode=8)  # type: ignore[call-arg]
    TrainConfig(episodes="8")  # type: ignore[arg-type]
    TrainConfig(agent=3)  # type: ignore[arg-type]
    TrainConfig(track="nobody")  # type: ignore[arg-type]
    return PPO("MlpPolicy")  # type: ignore[call-arg]
