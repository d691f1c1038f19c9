"""The algorithms: one paper a file. A new one is a file and a line here."""

from __future__ import annotations

from ..agent import Agent
from ..checks import check_choice
from .a2c import A2C
from .dapo import DAPO
from .dr_grpo import DrGRPO
from .grpo import GRPO
from .ppo import PPO
from .reinforce import Reinforce
from .reinforce_baseline import ReinforceBaseline
from .reinforce_plus_plus import ReinforcePlusPlus
from .rloo import RLOO

AGENTS: dict[str, type[Agent]] = {
    "reinforce": Reinforce,
    "reinforce-baseline": ReinforceBaseline,
    "rloo": RLOO,
    "reinforce-plus-plus": ReinforcePlusPlus,
    "a2c": A2C,
    "ppo": PPO,
    "grpo": GRPO,
    "dr-grpo": DrGRPO,
    "dapo": DAPO,
}


def find_agent(name: str) -> type[Agent]:
    """Return the agent class of this name.

    Raises:
        ValueError: for an unknown name, with the closest match.
    """
    return AGENTS[check_choice("agent", name, AGENTS)]


__all__ = [
    "A2C",
    "AGENTS",
    "DAPO",
    "GRPO",
    "PPO",
    "RLOO",
    "DrGRPO",
    "Reinforce",
    "ReinforceBaseline",
    "ReinforcePlusPlus",
    "find_agent",
]
