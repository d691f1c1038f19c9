"""Names of agents, verifiers, environments and tools on the command line; the user's own are file.py:Name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from .defaults import by_agent
from .parameters import comma_separated

if TYPE_CHECKING:
    from rlenv.agents import Agent


# What Python may pass objects in, and how config.json names these; <answer> is a text.
OBJECTS = ("agent", "verifier", "problems", "tools", "tokenizer", "verifier_kwargs", "env_kwargs")
_OBJECT = re.compile(r"<[\w.<>]+\.[\w.<>]+>")


class Name(click.ParamType):
    """A name, or several with commas or in a list; files and folders become absolute, for a run continued elsewhere.

    Args:
        offered: returns the names that a shell completes.
    """

    name = "NAME"

    def __init__(self, offered: Callable[[], Iterable[str]] = tuple) -> None:
        self.offered = offered

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the names; a module of the current directory is named by its file. An object of Python stays."""
        names = comma_separated(value)
        return _renamed(str(names), _absolute) if isinstance(names, (str, Path)) else names

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that fit, also at the end of a list; else let the shell complete files."""
        before, comma, last = incomplete.rpartition(",")
        items = [CompletionItem(before + comma + name) for name in self.offered() if name.startswith(last)]
        return items or [CompletionItem(incomplete, type="file")]


VERIFIER = Name(lambda: import_module("rlenv.verifiers").list_verifiers())  # which are imported to complete a name
TASK = Name(lambda: import_module("rlenv.tasks").TASKS)


def without_folders(value: Any) -> Any:
    """Return nested names with only the last part of absolute paths, for other machines than this one."""
    if isinstance(value, Mapping):
        return {name: without_folders(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(without_folders, value))
    return _renamed(value, _without_folders) if isinstance(value, str) else value


def short_name(spec: str) -> str:
    """Return a name for a part of a folder's: my_agent.MyAgent for /path/my_agent.py:MyAgent or <my_agent.MyAgent>."""
    names = (re.sub(r"[^\w.-]+", ".", _without_folders(name)).strip(".") for name, _ in _members(spec))
    return "-".join(names).replace(".py.", ".")


def objects_in(config: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the objects of Python that a config.json names, by argument: a name in <>, and how Python passes it."""
    settings = {name: config[name] for name in by_agent() if name in config} | dict(config.get("settings") or {})
    values = [(name, config.get(name), f"{name}=...") for name in OBJECTS]
    values += [(name, value, f"settings={{{name!r}: ...}}") for name, value in settings.items()]
    found = dict[str, tuple[str, str]]()
    for name, value, how in values:
        table = value if isinstance(value, Mapping) else dict(enumerate(value if isinstance(value, list) else [value]))
        for each in filter(_OBJECT.fullmatch, map(str, table.values())):
            found.setdefault(name, (each, how))
    return found


def resume_config(name: str, run: str | Path, passed: Iterable[str]) -> str:
    """Return the config, as Python spells it, that continues a run with objects, given how these are passed."""
    return f"{name}(resume={str(run)!r}, {', '.join(passed)})"


def resume_command(run: Path, config: Mapping[str, Any]) -> str:
    """Return the command that continues a run with this config.json, with `--trust` if that imports the user's code.

    Only the config of `rlenv train` names an agent. A run with objects of Python is continued by a call.
    """
    from rlenv.hub import is_allowed
    from rlenv.verifiers.plugins.registry import AROUND, is_listed

    command = "train" if "agent" in config else "sft"
    if objects := objects_in(config):
        call = resume_config(f"{command.title()}Config", run, (how for _, how in objects.values()))
        return f"rlenv.{command}(rlenv.{call})"
    env = str(config.get("env_id") or "").removeprefix("rlenv:")
    named = [str(config.get("agent")), env, *map(str, config.get("tools") or ())]
    judges = [name.partition(":")[0] for name, _ in _members(str(config.get("verifier") or "arith"))]
    own = any(":" in name for name in named) or not all(map(is_listed, judges)) or any(map(AROUND.__contains__, judges))
    own = own or config.get("unsafe_local_exec") or not is_allowed(config.get("problems"))
    return f"rlenv {command} --resume {shlex.quote(str(run))}{' --trust' if own else ''}"


def agent_class(name: str | type[Agent]) -> type[Agent]:
    """Return the class that a name stands for, importing its module if it is the user's; a class is returned.

    Raises:
        ValueError: for an unknown name, with the closest match; a module that cannot be imported; no agent.
    """
    from rlenv import agents
    from rlenv.verifiers.plugins.registry import reason_of
    from rlenv.verifiers.plugins.user_code import import_user_object

    if isinstance(name, str):
        if ":" not in name:
            if name.endswith(".py"):
                raise ValueError(f"unknown agent {name!r}; name the class in it: {name}:MyAgent")
            return agents.find_agent(name)
        try:
            cls = import_user_object(name)
        except (Exception, SystemExit) as error:  # a module may raise anything while it is imported
            raise ValueError(f"agent {name!r} cannot be loaded: {reason_of(error)}") from error
    else:
        cls = name
    if not (isinstance(cls, type) and issubclass(cls, agents.Agent)):
        raise ValueError(f"agent {name!r} is not a class of agents: it must be a subclass of agents.Agent, or of GRPO")
    return cls


def class_saved(name: str | None, trust: bool) -> type[Agent]:
    """Return the class that loads a checkpoint of this agent: the user's class, only with trust, else `Agent`.

    Raises:
        ValueError: if the class is the user's, and is not trusted or cannot be imported.
    """
    from rlenv import agents

    if name is None or ":" not in name:
        return agents.Agent
    if not trust:
        raise ValueError(f"the checkpoint names the agent {name!r} and may run any code; if you trust it, pass --trust")
    return agent_class(name)


def _members(spec: str) -> list[tuple[str, float]]:
    """Return the names in a list of verifiers with their weights; any other name alone."""
    from rlenv.verifiers.plugins.registry import split_list, split_weight

    members = split_list(spec)
    return [(spec, 1.0)] if members is None else list(map(split_weight, members))


def _renamed(spec: str, rename: Callable[[str], str]) -> str:
    return ",".join(rename(name) + ("" if weight == 1 else f"={weight!r}") for name, weight in _members(spec))


def _absolute(name: str) -> str:
    from rlenv.verifiers.plugins.registry import AROUND, is_listed
    from rlenv.verifiers.plugins.user_code import find_module_file

    module, _, attribute = name.rpartition(":")
    around, _, inner = name.partition(":")
    if around in AROUND and ":" in inner:
        return f"{around}:{_absolute(inner)}"
    if module == "reward_model" and Path(attribute).is_dir():
        return f"{module}:{Path(attribute).absolute()}"
    file = find_module_file(module) if module and not is_listed(module) else None
    return name if file is None else f"{file}:{attribute}"


def _without_folders(name: str) -> str:
    """Return a name with the last part of each absolute path; a URL stays as it is."""
    parts = name.split(":")
    return ":".join(Path(part).name if Path(part).is_absolute() and part[:2] != "//" else part for part in parts)
