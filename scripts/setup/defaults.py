"""What the constructors of agents and of the text environment take, and the defaults in their signatures."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

from agents import AGENTS, Agent
from agents.core.defaults import default_of
from rlenv.envs.task import TextGenTask

NOT_SETTINGS = ("env_kwargs", "policy_kwargs", "tensorboard_log", "verbose")
KINDS = {"control": "control", "language-model": "text"}  # of policies, and how --help calls them


def agent_settings(cls: type[Agent]) -> dict[str, Any]:
    """Return the settings that an agent's constructor takes, with their defaults."""
    return {name: default for name, default in keywords(cls).items() if name not in NOT_SETTINGS}


def common_settings() -> dict[str, Any]:
    """Return the settings that every agent takes with the same default."""
    first, *others = (agent_settings(cls) for cls in AGENTS.values())
    return {name: value for name, value in first.items() if all((name, value) in each.items() for each in others)}


def keywords(callable_: Callable[..., Any]) -> dict[str, Any]:
    """Return the arguments that have a default, with it."""
    parameters = inspect.signature(callable_).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


def shown_default(name: str) -> str:
    """Return the default of a setting for `--help`: the constructors', and for None the one of each kind of policy."""
    takers = {agent: settings[name] for agent, cls in AGENTS.items() if name in (settings := agent_settings(cls))}
    if not takers:
        return str(keywords(TextGenTask)[name])
    if set(takers.values()) == {None}:
        return ", ".join(f"{_usual(name, kind)} for {said}" for kind, said in KINDS.items())
    if len(set(takers.values())) == 1:
        return str(next(iter(takers.values())))
    return ", ".join(f"{value} for {agent}" for agent, value in takers.items())


def _usual(name: str, kind: str) -> str:
    """Return the default of most agents with this kind of policy."""
    values = Counter(default_of(name, cls, kind) for cls in AGENTS.values())
    [(value, count), *_] = values.most_common()
    return f"{value:g}" + ("" if count == len(AGENTS) else " (most agents)")
