"""What is known of an environment by its id, before it is made: its entry in Gymnasium's registry and its traits."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator

from ..checks import first_line
from .env_protocol import EnvTraits


def find_spec(env_id: str) -> EnvSpec:
    """Return an id's entry in Gymnasium's registry.

    Args:
        env_id: an id of Gymnasium; with a module or a file before it ("package:Name-v0", "file.py:Name-v0"), which is
            imported. It registers the id, or has a class of that name ("file.py:Class").

    Raises:
        ValueError: for an unknown id, with the closest match; a module that cannot be imported.
    """
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            found = getattr(_imported(module), name, None)
            if isinstance(found, type) and issubclass(found, gym.Env):
                return EnvSpec(name, found)
        return gym.spec(name)
    except (Exception, SystemExit) as error:  # a module may raise anything while it is imported
        hint = "" if module else f"; name its package, as in 'rlenv:{env_id}', or import that first (`import rlenv`)"
        raise ValueError(f"unknown environment {env_id!r}: {first_line(error).rstrip('.')}{hint}") from error


def full_id(env_id: str) -> str:
    """Return an id with the package of the registered environment, if that is not Gymnasium's: `rlenv:TextGen-v0`.

    Gymnasium imports that package wherever the environment is made again.

    Raises:
        ValueError: for an unknown id, with the closest match.
    """
    spec = find_spec(env_id)
    entry = spec.entry_point or spec.vector_entry_point
    package = entry.partition(":")[0].partition(".")[0] if isinstance(entry, str) else "gymnasium"
    return env_id if ":" in env_id or package == "gymnasium" else f"{package}:{env_id}"


def _imported(module: str) -> ModuleType:
    """Return the module of this name or in this file, which finds its neighbours after everything that is installed."""
    if not module.endswith(".py"):
        return importlib.import_module(module)
    if module not in sys.modules:
        spec = spec_from_file_location(module, module)
        assert spec is not None and spec.loader is not None
        loaded = module_from_spec(spec)
        sys.path.append(str(Path(module).absolute().parent))
        sys.modules[module] = loaded  # before it runs: dataclasses look there
        try:
            spec.loader.exec_module(loaded)
        except BaseException:
            del sys.modules[module]
            raise
    return sys.modules[module]


def traits_of(env_id: str) -> EnvTraits:
    """Return the traits of the vector environment that is registered with an id, without making it.

    Raises:
        ValueError: for an unknown id, with the closest match.
    """
    entry = find_spec(env_id).vector_entry_point
    return EnvTraits.of(load_env_creator(entry) if isinstance(entry, str) else entry)


def named_by_checkpoint(env_id: str, env_kwargs: Mapping[str, Any], trust: bool) -> dict[str, Any]:
    """Return the arguments with which an environment that a checkpoint names is made.

    Args:
        env_id: in the checkpoint.
        env_kwargs: its arguments.
        trust: whether names in the checkpoint may import modules. Otherwise an environment with the setting `trust`
            gets trust=False, and the id may only name rlenv, what is registered, or a module that has been imported.

    Raises:
        ValueError: for the id of another module, without trust; for an unknown id.
    """
    module, _, name = env_id.rpartition(":")
    registered = module in sys.modules or (name in gym.registry and full_id(name) == env_id)
    if not trust and module not in ("", "rlenv") and not registered:
        raise ValueError(
            f"the checkpoint names the environment {env_id!r}, which imports {module!r} and may run any code; "
            "if you trust it, pass --trust (Python: trust=True)"
        )
    return {**env_kwargs, **({"trust": trust} if "trust" in traits_of(env_id).agent_settings else {})}


def slots_wait(env_id: str) -> bool:
    """Tell whether slots of the registered vector environment wait, or it is the only one that the id has."""
    return find_spec(env_id).entry_point is None or traits_of(env_id).finished_slots_may_step
