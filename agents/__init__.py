"""Agents: REINFORCE and its descendants, for every environment with Gymnasium's `reset` and `step`."""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from rlenv.agents.algorithms import TABLE, find_agent
from rlenv.agents.errors import DivergedError, EngineError, VerifierError
from rlenv.agents.settings import setting

if __name__ == "agents":  # the folder, from the root of a checkout: its names are those of rlenv.agents
    __path__ = []  # and its modules are not imported a second time

if TYPE_CHECKING:
    from rlenv.agents.algorithms import AGENTS
    from rlenv.agents.algorithms.a2c import A2C
    from rlenv.agents.algorithms.cispo import CISPO
    from rlenv.agents.algorithms.covariance import ClipCov, KLCov
    from rlenv.agents.algorithms.dapo import DAPO
    from rlenv.agents.algorithms.delightful import Delightful
    from rlenv.agents.algorithms.distillation import Distillation
    from rlenv.agents.algorithms.dppo import DPPO
    from rlenv.agents.algorithms.dr_grpo import DrGRPO
    from rlenv.agents.algorithms.gdpo import GDPO
    from rlenv.agents.algorithms.gmpo import GMPO
    from rlenv.agents.algorithms.grpo import GRPO
    from rlenv.agents.algorithms.gspo import GSPO
    from rlenv.agents.algorithms.luspo import LUSPO
    from rlenv.agents.algorithms.maxrl import MaxRL
    from rlenv.agents.algorithms.pkpo import PKPO
    from rlenv.agents.algorithms.ppo import PPO
    from rlenv.agents.algorithms.reinforce import Reinforce
    from rlenv.agents.algorithms.reinforce_baseline import ReinforceBaseline
    from rlenv.agents.algorithms.reinforce_plus_plus import ReinforcePlusPlus
    from rlenv.agents.algorithms.rloo import RLOO
    from rlenv.agents.algorithms.sapo import SAPO
    from rlenv.agents.algorithms.sdpo import SDPO
    from rlenv.agents.algorithms.topr import TOPR
    from rlenv.agents.algorithms.vapo import VAPO
    from rlenv.agents.algorithms.vespo import VESPO
    from rlenv.agents.language.nucleus import SampledPolicy
    from rlenv.agents.language.policy import LanguageModelPolicy
    from rlenv.agents.policies import ControlPolicy, Policy, make_policy
    from rlenv.agents.policies.token_extractor import TokenExtractor
    from rlenv.agents.rollout import Batch, Rollout
    from rlenv.agents.rollouts.collector import Collector
    from rlenv.agents.rollouts.envs import make_envs
    from rlenv.agents.rollouts.sb3_envs import as_vec_env
    from rlenv.agents.training.agent import Agent
    from rlenv.agents.training.supervised import warm_start
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
        """Import names that need torch on first access, because importing torch takes seconds."""
        if name in _PLACES:
            found = resolve_name(f"rlenv.agents.{_PLACES[name]}")
        elif name.startswith("_") or find_spec(f"rlenv.agents.{name}") is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        else:
            found = import_module(f"rlenv.agents.{name}")
        return globals().setdefault(name, found)

    def __dir__() -> list[str]:
        """Return the names for completion, including the ones that are imported on first access."""
        return sorted({*globals(), *__all__})


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
