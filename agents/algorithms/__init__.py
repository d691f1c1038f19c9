"""The algorithms: one paper per file. To add one: a file, its settings in settings.py, and a line here."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ..checks import check_choice
from . import settings
from .settings import AgentSettings

if TYPE_CHECKING:
    from ..training.agent import Agent

    AGENTS: dict[str, type[Agent]]

TABLE: dict[str, tuple[str, type[AgentSettings]]] = {  # name: class and settings, as one would learn them
    "reinforce": ("reinforce:Reinforce", settings.ReinforceSettings),
    "reinforce-baseline": ("reinforce_baseline:ReinforceBaseline", settings.ReinforceBaselineSettings),
    "rloo": ("rloo:RLOO", AgentSettings),
    "reinforce-plus-plus": ("reinforce_plus_plus:ReinforcePlusPlus", settings.ReinforcePlusPlusSettings),
    "a2c": ("a2c:A2C", settings.ActorCriticSettings),
    "ppo": ("ppo:PPO", settings.PPOSettings),
    "grpo": ("grpo:GRPO", settings.GRPOSettings),
    "dr-grpo": ("dr_grpo:DrGRPO", settings.DrGRPOSettings),
    "dapo": ("dapo:DAPO", settings.DAPOSettings),
    "gspo": ("gspo:GSPO", settings.GSPOSettings),
    "cispo": ("cispo:CISPO", settings.CISPOSettings),
    "vapo": ("vapo:VAPO", settings.VAPOSettings),
    "maxrl": ("maxrl:MaxRL", settings.MaxRLSettings),
    "pkpo": ("pkpo:PKPO", settings.PKPOSettings),
    "gdpo": ("gdpo:GDPO", settings.GDPOSettings),
    "sapo": ("sapo:SAPO", settings.SAPOSettings),
    "dppo": ("dppo:DPPO", settings.DPPOSettings),
    "topr": ("topr:TOPR", settings.TOPRSettings),
    "clip-cov": ("covariance:ClipCov", settings.ClipCovSettings),
    "kl-cov": ("covariance:KLCov", settings.KLCovSettings),
    "distillation": ("distillation:Distillation", settings.DistillationSettings),
}
SETTINGS = {name: declared for name, (_, declared) in TABLE.items()}  # they import no torch, unlike the classes


def find_agent(name: str) -> type[Agent]:
    """Return the agent class of this name.

    Raises:
        ValueError: for an unknown name, with the closest match.
    """
    place, _ = TABLE[check_choice("agent", name, TABLE)]
    found: type[Agent] = resolve_name(f"{__name__}.{place}")
    return found


def __getattr__(name: str) -> Any:
    """Import the classes of all agents when somebody asks for them."""
    if name != "AGENTS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = {each: find_agent(each) for each in TABLE}
    return globals()[name]
