"""Names of agents on the command line: those of rlenv, and classes of the user's as file.py:Name or module:Name."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .parameters import typed
from .verifier_names import is_registered, short_name

if TYPE_CHECKING:
    from agents import Agent

SUFFIX = ".py"


def is_own(name: str) -> bool:
    """Tell whether a name imports a module of the user's."""
    return ":" in name


def label(name: str) -> str:
    """Return a name that can be part of the name of a folder: my_agent.MyAgent for /path/my_agent.py:MyAgent."""
    return short_name(name) if is_own(name) else name


def resume_command(run: Path, options: Mapping[str, Any]) -> str:
    """Return the command that continues a run, with `--trust` if that imports a module of the user's."""
    named = [options.get("agent"), *(options.get("tools") or ())]
    env = str(options.get("env_id") or "")
    own = any(is_own(str(name)) for name in named if name) or (is_own(env) and not env.startswith("rlenv:"))
    own = own or bool(options.get("unsafe_local_exec")) or not is_registered(options.get("verifier") or "arith")
    return f"rlenv train --resume {shlex.quote(str(run))}{' --trust' if own else ''}"


def agent_class(name: str) -> type[Agent]:
    """Return the class that a name stands for, importing its module if it is the user's.

    Raises:
        ValueError: for an unknown name, with the closest match; a module that cannot be imported; no agent.
    """
    import agents
    from verifiers.plugins.registry import reason_of
    from verifiers.plugins.user_code import import_user_module

    if not is_own(name):
        if name.endswith(SUFFIX):
            raise ValueError(f"unknown agent {name!r}; name the class in it: {name}:MyAgent")
        return agents.find_agent(name)
    module, _, attribute = name.rpartition(":")
    try:
        found = getattr(import_user_module(module), attribute)
    except (Exception, SystemExit) as error:  # a module may raise anything while it is imported
        raise ValueError(f"agent {name!r} cannot be loaded: {reason_of(error)}") from error
    if not (isinstance(found, type) and issubclass(found, agents.Agent)):
        raise ValueError(f"agent {name!r} is not a class of agents: it must be a subclass of agents.Agent, or of GRPO")
    return found


def class_saved(name: str | None, trust: bool) -> type[Agent]:
    """Return the class whose `load` reads a checkpoint of this agent: of the user's only with trust, else `Agent`.

    Raises:
        ValueError: if the class is the user's, and is not trusted or cannot be imported.
    """
    import agents

    if name is None or not is_own(name):
        return agents.Agent
    if not trust:
        raise ValueError(f"the checkpoint names the agent {name!r} and may run any code; if you trust it, pass --trust")
    return agent_class(name)


def check_trust(given: dict[str, Any]) -> None:
    """Refuse a class that the configuration of a resumed run names, unless the user named or trusts it.

    Raises:
        ValueError: naming the class.
    """
    if not typed("agent"):
        class_saved(given["agent"], given["trust_checkpoint"])
