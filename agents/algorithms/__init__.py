"""The algorithms: one paper per file. To add one: a file, and a line here."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from rlenv._checks import check_choice

from ..training.settings import AgentSettings

if TYPE_CHECKING:
    from ..training.agent import Agent

    AGENTS: dict[str, type[Agent]]

TABLE = {  # name: module and class, in the order in which one would learn them
    "reinforce": "reinforce:Reinforce",
    "reinforce-baseline": "reinforce_baseline:ReinforceBaseline",
    "rloo": "rloo:RLOO",
    "reinforce-plus-plus": "reinforce_plus_plus:ReinforcePlusPlus",
    "a2c": "a2c:A2C",
    "ppo": "ppo:PPO",
    "grpo": "grpo:GRPO",
    "dr-grpo": "dr_grpo:DrGRPO",
    "dapo": "dapo:DAPO",
    "gspo": "gspo:GSPO",
    "luspo": "luspo:LUSPO",
    "gmpo": "gmpo:GMPO",
    "cispo": "cispo:CISPO",
    "vapo": "vapo:VAPO",
    "maxrl": "maxrl:MaxRL",
    "pkpo": "pkpo:PKPO",
    "gdpo": "gdpo:GDPO",
    "sapo": "sapo:SAPO",
    "vespo": "vespo:VESPO",
    "dppo": "dppo:DPPO",
    "topr": "topr:TOPR",
    "delightful": "delightful:Delightful",
    "clip-cov": "covariance:ClipCov",
    "kl-cov": "covariance:KLCov",
    "distillation": "distillation:Distillation",
    "sdpo": "sdpo:SDPO",
}
AgentSettings._places.update({name: f"{__name__}.{place}" for name, place in TABLE.items()})


def find_agent(name: str) -> type[Agent]:
    """Return the agent class of this name, also of one that was put into `AGENTS`.

    Raises:
        ValueError: for an unknown name, with the closest match.
    """
    own: dict[str, type[Agent]] = globals().get("AGENTS", {})  # not there before its first use
    check_choice("agent", name, dict.fromkeys((*TABLE, *own)))
    return own.get(name) or resolve_name(AgentSettings._places[name])


def __getattr__(name: str) -> Any:
    """Import the classes of all agents on the first use of `AGENTS`."""
    if name != "AGENTS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = {each: find_agent(each) for each in TABLE}
    return globals()[name]
