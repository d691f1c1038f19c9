"""What constructors take, and the defaults in their signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from agents import AGENTS, Agent

NOT_SETTINGS = ("env_kwargs", "policy_kwargs", "tensorboard_log", "verbose")


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
