"""The algorithms: one paper per file. To add one: a file, and its class here."""

from __future__ import annotations

from ..checks import check_choice
from ..training.agent import Agent
from .a2c import A2C
from .cispo import CISPO
from .covariance import ClipCov, KLCov
from .dapo import DAPO
from .distillation import Distillation
from .dppo import DPPO
from .dr_grpo import DrGRPO
from .gdpo import GDPO
from .grpo import GRPO
from .gspo import GSPO
from .maxrl import MaxRL
from .pkpo import PKPO
from .ppo import PPO
from .reinforce import Reinforce
from .reinforce_baseline import ReinforceBaseline
from .reinforce_plus_plus import ReinforcePlusPlus
from .rloo import RLOO
from .sapo import SAPO
from .topr import TOPR
from .vapo import VAPO

AGENTS: dict[str, type[Agent]] = {  # in the order in which one would learn them
    cls.name: cls
    for cls in (
        *(Reinforce, ReinforceBaseline, RLOO, ReinforcePlusPlus, A2C, PPO, GRPO, DrGRPO, DAPO, GSPO, CISPO),
        *(VAPO, MaxRL, PKPO, GDPO, SAPO, DPPO, TOPR, ClipCov, KLCov, Distillation),
    )
}


def find_agent(name: str) -> type[Agent]:
    """Return the agent class of this name.

    Raises:
        ValueError: for an unknown name, with the closest match.
    """
    return AGENTS[check_choice("agent", name, AGENTS)]
