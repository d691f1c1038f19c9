"""Agents: REINFORCE and its descendants, for every environment with Gymnasium's `reset` and `step`."""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from rlenv._setting import Setting as Setting
from rlenv._settings import declared_by as declared_by
from rlenv._settings import setting as setting
from rlenv.agents.algorithms import TABLE
from rlenv.agents.algorithms import find_agent as find_agent
from rlenv.agents.errors import DivergedError as DivergedError
from rlenv.agents.errors import EngineError as EngineError
from rlenv.agents.errors import VerifierError as VerifierError

if __name__ == "agents":  # the folder, from the root of a checkout: its names are those of rlenv.agents
    __path__ = []  # and its modules are not imported a second time

if TYPE_CHECKING:  # an alias says that the name is public
    from rlenv.agents.algorithms import AGENTS as AGENTS
    from rlenv.agents.algorithms.a2c import A2C as A2C
    from rlenv.agents.algorithms.cispo import CISPO as CISPO
    from rlenv.agents.algorithms.covariance import ClipCov as ClipCov
    from rlenv.agents.algorithms.covariance import KLCov as KLCov
    from rlenv.agents.algorithms.dapo import DAPO as DAPO
    from rlenv.agents.algorithms.delightful import Delightful as Delightful
    from rlenv.agents.algorithms.distillation import Distillation as Distillation
    from rlenv.agents.algorithms.dppo import DPPO as DPPO
    from rlenv.agents.algorithms.dr_grpo import DrGRPO as DrGRPO
    from rlenv.agents.algorithms.gdpo import GDPO as GDPO
    from rlenv.agents.algorithms.gmpo import GMPO as GMPO
    from rlenv.agents.algorithms.grpo import GRPO as GRPO
    from rlenv.agents.algorithms.gspo import GSPO as GSPO
    from rlenv.agents.algorithms.luspo import LUSPO as LUSPO
    from rlenv.agents.algorithms.maxrl import MaxRL as MaxRL
    from rlenv.agents.algorithms.pkpo import PKPO as PKPO
    from rlenv.agents.algorithms.ppo import PPO as PPO
    from rlenv.agents.algorithms.reinforce import Reinforce as Reinforce
    from rlenv.agents.algorithms.reinforce_baseline import ReinforceBaseline as ReinforceBaseline
    from rlenv.agents.algorithms.reinforce_plus_plus import ReinforcePlusPlus as ReinforcePlusPlus
    from rlenv.agents.algorithms.rloo import RLOO as RLOO
    from rlenv.agents.algorithms.sapo import SAPO as SAPO
    from rlenv.agents.algorithms.sdpo import SDPO as SDPO
    from rlenv.agents.algorithms.topr import TOPR as TOPR
    from rlenv.agents.algorithms.vapo import VAPO as VAPO
    from rlenv.agents.algorithms.vespo import VESPO as VESPO
    from rlenv.agents.language.nucleus import SampledPolicy as SampledPolicy
    from rlenv.agents.language.policy import LanguageModelPolicy as LanguageModelPolicy
    from rlenv.agents.policies import ControlPolicy as ControlPolicy
    from rlenv.agents.policies import Policy as Policy
    from rlenv.agents.policies import make_policy as make_policy
    from rlenv.agents.policies.token_extractor import TokenExtractor as TokenExtractor
    from rlenv.agents.rollout import Batch as Batch
    from rlenv.agents.rollout import Rollout as Rollout
    from rlenv.agents.rollouts.collector import Collector as Collector
    from rlenv.agents.rollouts.envs import make_envs as make_envs
    from rlenv.agents.rollouts.sb3_envs import as_vec_env as as_vec_env
    from rlenv.agents.training.agent import Agent as Agent
    from rlenv.agents.training.supervised import warm_start as warm_start
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
    _SETTINGS = ("Setting", "declared_by", "setting")
    __all__ = sorted((*_PLACES, *_SETTINGS, "DivergedError", "EngineError", "VerifierError", "find_agent"))

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
