"""The algorithms: one paper a file. A new one is a file and a line here."""

from __future__ import annotations

from ..agent import Agent
from ..checks import check_choice
from .reinforce import Reinforce
from .reinforce_baseline import ReinforceBaseline

AGENTS: dict[str, type[Agent]] = {
    "reinforce": Reinforce,
    "reinforce-baseline": ReinforceBaseline,
}


def find_agent(name: str) -> type[Agent]:
    """Return the agent class of this name.

    Raises:
        ValueError: for an unknown name, with the closest match.
    """
    return AGENTS[check_choice("agent", name, AGENTS)]


__all__ = ["AGENTS", "Reinforce", "ReinforceBaseline", "find_agent"]
