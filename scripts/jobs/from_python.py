"""Errors of jobs that Python calls: they name options, and a note says which fields of the config these are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, TypeVar

from rlenv._checks import in_one_line
from rlenv._settings import declared_by

from ..config.base import Config, options_of

C = TypeVar("C", bound=Config)
P = ParamSpec("P")
R = TypeVar("R")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def job(function: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
    """Return a job whose errors about its config have a note for Python, which a command does not print."""

    @wraps(function)
    def called(config: C, *args: P.args, **more: P.kwargs) -> R:
        kind = next(iter(signature(function, eval_str=True).parameters.values())).annotation
        if not isinstance(config, kind):
            given, name = in_one_line(config), kind.__name__
            raise TypeError(f"{function.__name__} takes {name}(...) or {name}.from_file(PATH), got {given}")
        try:
            return function(config, *args, **more)
        except ValueError as error:
            if fields := ", ".join(_fields(type(config), OPTION.findall(str(error)))):
                error.add_note(f"In Python: {fields}")
            raise

    return called


def _fields(cls: type[Config], typed: list[str]) -> Iterator[str]:
    """Yield the options of a config as its arguments, such as "overwrite=True", without those of other commands."""
    by_option: dict[str, Any] = {one.option: (name, one) for name, one in options_of(cls).items()}
    for name, one in (by_option[option] for option in dict.fromkeys(typed) if option in by_option):
        value = "True" if one.kind == "bool" else "..."
        yield f"{name}={value}" if name in declared_by(cls) else f"settings={{{name!r}: {value}}}"
