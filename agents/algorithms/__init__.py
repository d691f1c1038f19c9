"""The algorithms: one paper per file. To add one: a file, and a line here."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ..checks import check_choice
from ..training.settings import AgentSettings
from . import options

if TYPE_CHECKING:
    from ..training.agent import Agent

    AGENTS: dict[str, type[Agent]]

TABLE = {  # name: module and class, in the order in which one would learn them
    "reinforce": "agents.algorithms.reinforce:Reinforce",
    "reinforce-baseline": "agents.algorithms.reinforce_baseline:ReinforceBaseline",
    "rloo": "agents.algorithms.rloo:RLOO",
    "reinforce-plus-plus": "agents.algorithms.reinforce_plus_plus:ReinforcePlusPlus",
    "a2c": "agents.algorithms.a2c:A2C",
    "ppo": "agents.algorithms.ppo:PPO",
    "grpo": "agents.algorithms.grpo:GRPO",
    "dr-grpo": "agents.algorithms.dr_grpo:DrGRPO",
    "dapo": "agents.algorithms.dapo:DAPO",
    "gspo": "agents.algorithms.gspo:GSPO",
    "cispo": "agents.algorithms.cispo:CISPO",
    "vapo": "agents.algorithms.vapo:VAPO",
    "maxrl": "agents.algorithms.maxrl:MaxRL",
    "pkpo": "agents.algorithms.pkpo:PKPO",
    "gdpo": "agents.algorithms.gdpo:GDPO",
    "sapo": "agents.algorithms.sapo:SAPO",
    "dppo": "agents.algorithms.dppo:DPPO",
    "topr": "agents.algorithms.topr:TOPR",
    "clip-cov": "agents.algorithms.covariance:ClipCov",
    "kl-cov": "agents.algorithms.covariance:KLCov",
    "distillation": "agents.algorithms.distillation:Distillation",
}
OPTIONS: dict[str, type[AgentSettings]] = {  # of the algorithms that have some of their own; they import no torch
    "reinforce-baseline": options.BaselineOptions,
    "reinforce-plus-plus": options.PlusPlusOptions,
    "pkpo": options.PKPOOptions,
    "distillation": options.TaughtOptions,
}
SETTINGS = {name: OPTIONS.get(name, AgentSettings) for name in TABLE}  # that may have an option


def find_agent(name: str) -> type[Agent]:
    """Return the agent class of this name.

    Raises:
        ValueError: for an unknown name, with the closest match.
    """
    found: type[Agent] = resolve_name(TABLE[check_choice("agent", name, TABLE)])
    return found


def __getattr__(name: str) -> Any:
    """Import the classes of all agents when somebody asks for them."""
    if name != "AGENTS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = {each: find_agent(each) for each in TABLE}
    return globals()[name]
