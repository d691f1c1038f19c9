"""The algorithms: one paper a file. A new one is a file and a line here."""

from __future__ import annotations

from importlib import import_module

from ..agent import Agent
from ..checks import check_choice

REGISTRY = {  # name: module.Class, in the order of a course
    "reinforce": "reinforce.Reinforce",
    "reinforce-baseline": "reinforce_baseline.ReinforceBaseline",
    "rloo": "rloo.RLOO",
    "reinforce-plus-plus": "reinforce_plus_plus.ReinforcePlusPlus",
    "a2c": "a2c.A2C",
    "ppo": "ppo.PPO",
    "grpo": "grpo.GRPO",
    "dr-grpo": "dr_grpo.DrGRPO",
    "dapo": "dapo.DAPO",
}


def _load(place: str) -> type[Agent]:
    module, _, name = place.partition(".")
    return getattr(import_module(f".{module}", __name__), name)


AGENTS: dict[str, type[Agent]] = {name: _load(place) for name, place in REGISTRY.items()}


def find_agent(name: str) -> type[Agent]:
    """Return the agent class of this name.

    Raises:
        ValueError: for an unknown name, with the closest match.
    """
    return AGENTS[check_choice("agent", name, AGENTS)]
