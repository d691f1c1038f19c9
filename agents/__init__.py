"""The learners: REINFORCE and its descendants, for every environment with Gymnasium's `reset` and `step`."""

from .agent import Agent
from .algorithms import (
    A2C,
    AGENTS,
    DAPO,
    GRPO,
    PPO,
    RLOO,
    DrGRPO,
    Reinforce,
    ReinforceBaseline,
    ReinforcePlusPlus,
    find_agent,
)
from .collector import Collector
from .envs import make_envs
from .policies import ControlPolicy, LanguageModelPolicy, Policy, make_policy
from .rollout import Rollout
from .warm_start import warm_start

__rlenv_package__ = True

__all__ = [
    "A2C",
    "AGENTS",
    "DAPO",
    "GRPO",
    "PPO",
    "RLOO",
    "Agent",
    "Collector",
    "ControlPolicy",
    "DrGRPO",
    "LanguageModelPolicy",
    "Policy",
    "Reinforce",
    "ReinforceBaseline",
    "ReinforcePlusPlus",
    "Rollout",
    "find_agent",
    "make_envs",
    "make_policy",
    "warm_start",
]
