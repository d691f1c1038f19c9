"""Agents: REINFORCE and its descendants, for every environment with Gymnasium's `reset` and `step`."""

from typing import TYPE_CHECKING, Any

from . import policies
from .algorithms import AGENTS, find_agent
from .algorithms.a2c import A2C
from .algorithms.cispo import CISPO
from .algorithms.covariance import ClipCov, KLCov
from .algorithms.dapo import DAPO
from .algorithms.distillation import Distillation
from .algorithms.dppo import DPPO
from .algorithms.dr_grpo import DrGRPO
from .algorithms.gdpo import GDPO
from .algorithms.grpo import GRPO
from .algorithms.gspo import GSPO
from .algorithms.maxrl import MaxRL
from .algorithms.pkpo import PKPO
from .algorithms.ppo import PPO
from .algorithms.reinforce import Reinforce
from .algorithms.reinforce_baseline import ReinforceBaseline
from .algorithms.reinforce_plus_plus import ReinforcePlusPlus
from .algorithms.rloo import RLOO
from .algorithms.sapo import SAPO
from .algorithms.topr import TOPR
from .algorithms.vapo import VAPO
from .errors import DivergedError, VerifierError
from .policies import ControlPolicy, Policy, make_policy
from .policies.control.token_extractor import TokenExtractor
from .rollout import Batch, Rollout
from .rollouts.collector import Collector
from .rollouts.envs import make_envs
from .rollouts.sb3_envs import as_vec_env
from .settings import setting
from .training.agent import Agent
from .training.supervised import warm_start

if TYPE_CHECKING:
    from .policies import LanguageModelPolicy
else:

    def __getattr__(name: str) -> Any:
        """Import the policies of language models when they are asked for; see `policies`."""
        if name == "LanguageModelPolicy":
            return policies.LanguageModelPolicy
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """Return the names that completion offers, also those that are imported when asked for."""
        return sorted({*globals(), *__all__})


__rlenv_package__ = True

__all__ = [
    "A2C",
    "AGENTS",
    "CISPO",
    "DAPO",
    "DPPO",
    "GDPO",
    "GRPO",
    "GSPO",
    "PKPO",
    "PPO",
    "RLOO",
    "SAPO",
    "TOPR",
    "VAPO",
    "Agent",
    "Batch",
    "ClipCov",
    "Collector",
    "ControlPolicy",
    "Distillation",
    "DivergedError",
    "DrGRPO",
    "KLCov",
    "LanguageModelPolicy",
    "MaxRL",
    "Policy",
    "Reinforce",
    "ReinforceBaseline",
    "ReinforcePlusPlus",
    "Rollout",
    "TokenExtractor",
    "VerifierError",
    "as_vec_env",
    "find_agent",
    "make_envs",
    "make_policy",
    "setting",
    "warm_start",
]
