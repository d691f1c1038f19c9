"""The settings of agents as the command line shows them, read from their classes, which import no torch."""

from __future__ import annotations

import difflib
import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import click

from agents.algorithms import SETTINGS
from agents.settings import ANY, Setting, declared_by
from agents.training.settings import AgentSettings

NOT_SETTINGS = ("env_kwargs", "policy_kwargs", "tensorboard_log", "verbose")
MISSPELLED = 0.8  # so alike, as difflib has it, are an option and what was typed
KINDS = {"control": "control", "language-model": "text"}  # of policies, and how --help calls them


def agent_settings(cls: type[AgentSettings]) -> dict[str, Any]:
    """Return the settings that an agent's constructor takes, with their defaults."""
    return {name: default for name, default in keywords(cls).items() if name not in NOT_SETTINGS}


def common_settings() -> dict[str, Any]:
    """Return the settings that every agent takes with the same default."""
    from agents import AGENTS  # slow

    first, *others = map(agent_settings, AGENTS.values())
    return {name: value for name, value in first.items() if all((name, value) in each.items() for each in others)}


def keywords(callable_: Callable[..., Any]) -> dict[str, Any]:
    """Return the arguments that have a default, with it."""
    parameters = inspect.signature(callable_).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


def by_agent(classes: Mapping[str, type[AgentSettings]] = SETTINGS) -> dict[str, dict[str, Setting]]:
    """Return what is declared of each setting, by agent; first those that only some have.

    Args:
        classes: of the agents; by default those that say what may have an option, which import no torch.
    """
    of_agents = {agent: declared_by(cls) for agent, cls in classes.items()}
    of_every = [name for name in declared_by(AgentSettings) if name not in NOT_SETTINGS]
    names = [*(name for own in of_agents.values() for name in own if name not in declared_by(AgentSettings)), *of_every]
    return {name: {agent: own[name] for agent, own in of_agents.items() if name in own} for name in names}


def advice(option: str, command: click.Command) -> str:
    """Return how a setting is written that a command has no option for; empty for any other name."""
    name, known = option.lstrip("-").replace("-", "_"), [str(each.name) for each in command.params]
    if difflib.get_close_matches(name, known, cutoff=MISSPELLED):
        return ""
    from agents import AGENTS  # slow

    return f"pass --agent-arg {name}=..." if name in by_agent(AGENTS) and "agent_args" in known else ""


def about(of_agents: dict[str, Setting]) -> str:
    """Return the help of an option, with what is allowed, and the agents that have the setting if others do not."""
    said = " ".join(dict.fromkeys(one.help for one in of_agents.values()))
    if len(of_agents) == len(SETTINGS):
        return said + next((f" One of {', '.join(one.one_of)}." for one in of_agents.values() if one.one_of), "")
    named = (f"{agent}: {', '.join(one.one_of)}" if one.one_of else agent for agent, one in of_agents.items())
    return f"{said} For {'; '.join(named)}."


def shown_default(of_agents: Mapping[str, Setting]) -> str:
    """Return the default of a setting for `--help`: the constructors', and for None the one of each kind of policy."""
    first, values = next(iter(of_agents.values())), {agent: one.default for agent, one in of_agents.items()}
    if first.shown:  # of most agents
        return Counter(one.shown for one in of_agents.values()).most_common(1)[0][0]
    if first.by_kind:
        return ", ".join(_usual(of_agents, kind) for kind in KINDS)
    if len(set(values.values())) == 1:
        return str(first.default)
    agents = {value: [agent for agent in values if values[agent] == value] for value in values.values()}
    usual = max(agents, key=lambda value: len(agents[value])) if len(values) == len(SETTINGS) else None
    said = {value: "most agents" if value == usual else ", ".join(those) for value, those in agents.items()}
    return ", ".join(f"{value} for {those}" for value, those in said.items())


def _usual(of_agents: Mapping[str, Setting], kind: str) -> str:
    """Return the default of most agents with this kind of policy."""
    every = [one.by_kind.get(kind, one.by_kind.get(ANY)) for one in of_agents.values()]
    [(value, count), *_] = Counter(every).most_common()
    return f"{value:g} for {KINDS[kind]}" + ("" if count == len(every) else " (most agents)")
