"""Agents: REINFORCE and its descendants, for every environment with Gymnasium's `reset` and `step`."""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from .algorithms import TABLE, find_agent
from .errors import DivergedError, EngineError, VerifierError
from .settings import setting

if TYPE_CHECKING:
    from .algorithms import AGENTS
    from .algorithms.a2c import A2C
    from .algorithms.cispo import CISPO
    from .algorithms.covariance import ClipCov, KLCov
    from .algorithms.dapo import DAPO
    from .algorithms.delightful import Delightful
    from .algorithms.distillation import Distillation
    from .algorithms.dppo import DPPO
    from .algorithms.dr_grpo import DrGRPO
    from .algorithms.gdpo import GDPO
    from .algorithms.gmpo import GMPO
    from .algorithms.grpo import GRPO
    from .algorithms.gspo import GSPO
    from .algorithms.luspo import LUSPO
    from .algorithms.maxrl import MaxRL
    from .algorithms.pkpo import PKPO
    from .algorithms.ppo import PPO
    from .algorithms.reinforce import Reinforce
    from .algorithms.reinforce_baseline import ReinforceBaseline
    from .algorithms.reinforce_plus_plus import ReinforcePlusPlus
    from .algorithms.rloo import RLOO
    from .algorithms.sapo import SAPO
    from .algorithms.sdpo import SDPO
    from .algorithms.topr import TOPR
    from .algorithms.vapo import VAPO
    from .algorithms.vespo import VESPO
    from .language.nucleus import SampledPolicy
    from .language.policy import LanguageModelPolicy
    from .policies import ControlPolicy, Policy, make_policy
    from .policies.token_extractor import TokenExtractor
    from .rollout import Batch, Rollout
    from .rollouts.collector import Collector
    from .rollouts.envs import make_envs
    from .rollouts.sb3_envs import as_vec_env
    from .training.agent import Agent
    from .training.supervised import warm_start
else:
    _PLACES = {place.partition(":")[2]: f"algorithms.{place}" for place in TABLE.values()} | {
        "AGENTS": "algorithms:AGENTS",
        "Agent": "training.agent:Agent",
        "Batch": "rollout:Batch",
        "Collector": "rollouts.collector:Collector",
        "ControlPolicy": "policies.control:ControlPolicy",
        "LanguageModelPolicy": "language.policy:LanguageModelPolicy",
        "Policy": "policies.base:Policy",
        "Rollout": "rollout:Rollout",
        "SampledPolicy": "language.nucleus:SampledPolicy",
        "TokenExtractor": "policies.token_extractor:TokenExtractor",
        "as_vec_env": "rollouts.sb3_envs:as_vec_env",
        "make_envs": "rollouts.envs:make_envs",
        "make_policy": "policies.make:make_policy",
        "warm_start": "training.supervised:warm_start",
    }

    def __getattr__(name: str) -> Any:
        """Import what needs torch, which takes seconds, when it is asked for."""
        if name in _PLACES:
            found = resolve_name(f"{__name__}.{_PLACES[name]}")
        elif name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        else:
            found = import_module(f".{name}", __name__)
        return globals().setdefault(name, found)

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
    "GMPO",
    "GRPO",
    "GSPO",
    "LUSPO",
    "PKPO",
    "PPO",
    "RLOO",
    "SAPO",
    "SDPO",
    "TOPR",
    "VAPO",
    "VESPO",
    "Agent",
    "Batch",
    "ClipCov",
    "Collector",
    "ControlPolicy",
    "Delightful",
    "Distillation",
    "DivergedError",
    "DrGRPO",
    "EngineError",
    "KLCov",
    "LanguageModelPolicy",
    "MaxRL",
    "Policy",
    "Reinforce",
    "ReinforceBaseline",
    "ReinforcePlusPlus",
    "Rollout",
    "SampledPolicy",
    "TokenExtractor",
    "VerifierError",
    "as_vec_env",
    "find_agent",
    "make_envs",
    "make_policy",
    "setting",
    "warm_start",
]
