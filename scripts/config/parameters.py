"""How options are put together, which of them were given, and how KEY=VALUE is read; they know no option by name."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource


class Options(tuple[click.Option, ...]):
    """Options that commands share; as a decorator, they are added to a command in this order."""

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Add the options to those of the decorators below."""
        decorated: Any = function
        decorated.__click_params__ = [*getattr(function, "__click_params__", ()), *reversed(self)]
        return function

    @property
    def names(self) -> list[str]:
        """The names of the parameters."""
        return [str(option.name) for option in self]

    def without(self, *names: str) -> Options:
        """Return the options but those of these parameters."""
        return Options(option for option in self if option.name not in names)


def option(
    flags: str, kind: Any, about: str, default: Any = None, shown: str | None = None, **more: Any
) -> click.Option:
    """Return an option.

    Args:
        flags: such as "--chat/--no-chat", or "--json as_json" with the name of the parameter.
        kind: type of the values; bool for an option without a value.
        about: shown by `--help`.
        default: None for an argument that is not passed on.
        shown: the default in words.
        more: attributes of `click.Option`.
    """
    attributes = {"type": kind, "help": about, "show_default": shown, "is_flag": kind is bool}
    if "required" not in more:
        attributes["default"] = default
    return click.Option(flags.split(), **attributes | more)


def group(heading: str, *members: click.Option) -> Options:
    """Return options that `--help` shows under a heading."""
    own = [copy.copy(member) for member in members]  # other groups may have them, too
    for member in own:
        member.heading = heading  # type: ignore[attr-defined]
    return Options(own)


class KeyValue(click.ParamType):
    """KEY=VALUE; VALUE is read as JSON, and as text if it is not valid JSON.

    Args:
        text: whether values are texts even if they look like numbers, as names of columns may.
    """

    def __init__(self, text: bool = False) -> None:
        self.text, self.name = text, "COLUMN=NAME" if text else "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """Split at the first equals sign, if that has not been done."""
        if not isinstance(value, str):
            return value[0], str(value[1]) if self.text else value[1]
        key, equals, literal = value.partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is not of the form {self.name}", param, ctx)
        try:
            found = json.loads(literal)
        except json.JSONDecodeError:
            return key, literal
        return key, literal if self.text and not isinstance(found, str) else found


class Size(click.ParamType):
    """A number of bytes, such as 80G or 512M: of 2^30 and 2^20."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([MGT])(?:i?B)?", str(value).strip(), re.IGNORECASE)
        if found is None or not float(found[1]):
            self.fail(f"{value!r} is not a size such as 80G or 512M", param, ctx)
        return int(float(found[1]) * 2 ** {"M": 20, "G": 30, "T": 40}[found[2].upper()])


class ProblemSource(click.Path):
    """A file, as an absolute path for a run continued from elsewhere; or a data set of the hub, as it is."""

    def __init__(self) -> None:
        super().__init__(resolve_path=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or the name of the data set."""
        return value if str(value).startswith("hf:") else super().convert(value, param, ctx)


def typed(name: str) -> bool:
    """Tell whether an option was given on the command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def flag_of(name: str) -> str:
    """Return the flag of an option of the running command, given its parameter name."""
    return next(option.opts[0] for option in click.get_current_context().command.params if option.name == name)


def given_by_user(name: str) -> bool:
    """Tell whether an option of the running command was given, on the command line or in a file."""
    context = click.get_current_context()
    return context.get_parameter_source(name) not in (None, ParameterSource.DEFAULT)
