"""Names on the command line, of verifiers above all: made absolute, shortened for folders, whether they need trust."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


class OneName(click.ParamType):
    """A tool, an environment or an agent by name; a file in it becomes absolute, for a run continued from elsewhere."""

    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the same one; a module of the current directory is named by its file."""
        return _absolute(str(value))


class VerifierName(OneName):
    """Verifiers by name; files and folders in it become absolute."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the same verifiers; a module of the current directory is named by its file."""
        return absolute(str(value))


def absolute(spec: str) -> str:
    """Return the names of verifiers with absolute paths: of files, and of folders with reward models."""
    return _renamed(spec, _absolute)


def without_folders(spec: str) -> str:
    """Return the names of verifiers with only the last part of absolute paths, for other machines than this one."""
    return _renamed(spec, lambda name: ":".join(map(last_part, name.split(":"))))


def last_part(text: str) -> str:
    """Return the last part of an absolute path; any other text unchanged, also what follows the colon of a URL."""
    return Path(text).name if Path(text).is_absolute() and not text.startswith("//") else text


def short_name(spec: str) -> str:
    """Return a name for verifiers that can be part of the name of a folder."""
    return "-".join(re.sub(r"[^\w.-]+", ".", _short(name)) for name in _names(spec))


def is_registered(spec: str) -> bool:
    """Tell whether these verifiers are made without importing a module that the user named."""
    from verifiers.plugins.registry import is_listed

    return all(is_listed(name.partition(":")[0]) for name in _names(spec))


def _renamed(spec: str, rename: Callable[[str], str]) -> str:
    """Return the names of verifiers, each renamed, with their weights."""
    from verifiers.plugins.registry import split_list, split_weight

    members = split_list(spec)
    if members is None:
        return rename(spec)
    pairs = [split_weight(each) for each in members]
    return ",".join(rename(name) + ("" if weight == 1 else f"={weight!r}") for name, weight in pairs)


def _absolute(name: str) -> str:
    from verifiers.plugins.registry import ENVIRONMENT, is_listed
    from verifiers.plugins.user_code import find_module_file

    module, _, attribute = name.rpartition(":")
    if module.startswith(f"{ENVIRONMENT}:"):
        return f"{ENVIRONMENT}:{_absolute(name.partition(':')[2])}"
    if module == "reward_model" and Path(attribute).is_dir():
        return f"{module}:{Path(attribute).absolute()}"
    file = find_module_file(module) if module and not is_listed(module) else None
    return name if file is None else f"{file}:{attribute}"


def _names(spec: str) -> list[str]:
    from verifiers.plugins.registry import split_list, split_weight

    members = split_list(spec)
    return [spec] if members is None else [split_weight(each)[0] for each in members]


def _short(name: str) -> str:
    module, _, attribute = name.rpartition(":")
    if module.endswith(".py"):
        return f"{Path(module).stem}.{attribute}"
    return f"{module}.{last_part(attribute)}" if module and Path(attribute).is_absolute() else name
