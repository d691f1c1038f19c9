"""How options are put together, which of them were given, and how KEY=VALUE is read; they know no option by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def options(*decorators: Decorator, heading: str | None = None) -> Decorator:
    """Join click options into one decorator, shown in this order.

    Args:
        decorators: of `click.option`, `setting` and this function.
        heading: under which `--help` shows those of the options that have none yet.
    """

    def apply(function: Any) -> Callable[..., Any]:
        before = len(getattr(function, "__click_params__", ()))
        for decorator in reversed(decorators):
            function = decorator(function)
        for option in function.__click_params__[before:]:
            option.heading = getattr(option, "heading", None) or heading
        return function

    return apply


def names_of(decorator: Decorator) -> tuple[str, ...]:
    """Return the parameter names of the options that a decorator adds."""
    added: list[click.Parameter] = click.command()(decorator(lambda: None)).params
    return tuple(str(option.name) for option in added)


def without(decorator: Decorator, *names: str) -> Decorator:
    """Return a decorator that adds the same options but those of these parameter names."""

    def apply(function: Callable[..., Any]) -> Callable[..., Any]:
        before = list(getattr(function, "__click_params__", ()))
        decorated: Any = decorator(function)
        added = [option for option in decorated.__click_params__[len(before) :] if option.name not in names]
        decorated.__click_params__ = before + added
        return decorated

    return apply


class KeyValue(click.ParamType):
    """KEY=VALUE; VALUE is read as JSON, and as text if it is not valid JSON."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """Split at the first equals sign."""
        if isinstance(value, (tuple, list)):
            return value[0], value[1]
        key, equals, text = value.partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is not of the form KEY=VALUE", param, ctx)
        try:
            return key, json.loads(text)
        except json.JSONDecodeError:
            return key, text


class ColumnName(KeyValue):
    """COLUMN=NAME: what a file calls a column (prompt, answer, ...). NAME is text even if it looks like a number."""

    name = "COLUMN=NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split at the first equals sign; a JSON string is read as JSON."""
        column, name = super().convert(value, param, ctx)
        literal = value.partition("=")[2] if isinstance(value, str) else str(name)
        return column, name if isinstance(name, str) else literal


def typed(name: str) -> bool:
    """Tell whether an option was given on the command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def flag_of(name: str) -> str:
    """Return how an option of the running command is written, given its parameter name."""
    return next(option.opts[0] for option in click.get_current_context().command.params if option.name == name)


def given_by_user(name: str) -> bool:
    """Tell whether an option of the running command was given, on the command line or in a file."""
    context = click.get_current_context()
    return context.get_parameter_source(name) not in (None, ParameterSource.DEFAULT)
