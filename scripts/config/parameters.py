"""Settings as options of click: their flags, and what is read from a text, a file or Python."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from rlenv._setting import Setting

LARGEST = 2**63 - 1
OF_PYTHON = {"True": "true", "False": "false", "None": "null"}  # in JSON
METAVARS = {"int": "INTEGER", "float": "FLOAT", "schedule": "FLOAT"}


def read(one: Setting, value: Any) -> Any:
    """Return the value of a setting of a job, from a text, a file or Python, as it is kept.

    Raises:
        ValueError: in one line, for a value that is not allowed.
    """
    if type(one.checked_by) is click.Path and value is not None:
        if not isinstance(value, (str, Path)):
            raise ValueError(f"{one.name} must be a path, got {value!r}")
        value = os.path.expanduser(value)  # noqa: PTH111 (unlike pathlib's, it keeps ~name of no user)
    try:
        kept = value if no_value(value) else one.read(value)
    except click.BadParameter as error:  # of a type of click
        raise ValueError(f"{one.name}: {error.message}") from error
    except RecursionError:
        raise ValueError(f"{one.name} contains itself, or is nested too deeply") from None
    if reason := no_value(kept):
        raise ValueError(f"{one.name} {reason}")
    return kept


def option_of(one: Setting) -> click.Option:
    """Return the option of a setting; one that is not off by default has a second flag, which turns it off."""
    flags, kind = one.flag or one.option, one.kind
    if kind == "bool" and not one.flag and one.default is not False:
        flags += f"/--no-{flags[2:]}"
    limits = one.allowed if {one.low, one.high, one.above, one.below} != {None} else ""
    notes = [f"  [{note}]" for note in (limits, "required" * one.required) if note]
    several, choice = one.takes_several, f" One of {', '.join(one.one_of)}." * bool(one.one_of)
    of_each: Any = bool if kind == "bool" else Value(one)  # the type of the values, of several each
    if isinstance(one.checked_by, click.ParamType):
        of_each = one.checked_by
    elif kind == "table":
        of_each = KeyValue(get_args(one.hint)[1] is str)
    built: Any = click.Option(
        [flags, one.name],
        type=of_each,
        is_flag=kind == "bool",
        multiple=several,
        default=None if several or one.required else one.default,
        show_default=one.shown or True,
        envvar=one.envvar,
        help="".join([one.help, choice, *notes]),
    )
    built.heading = one.heading
    return built


class Value(click.ParamType):
    """A value of a setting, which the setting checks."""

    def __init__(self, one: Setting) -> None:
        self.one, self.is_path = replace(one, default=None), "Path" in one.type  # one of several
        of_bytes = one.checked_by is size
        self.name = "PATH" if self.is_path else "SIZE" if of_bytes else METAVARS.get(one.kind, "TEXT")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as it is kept."""
        try:
            return self.one.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the allowed names; of a path, let the shell complete files."""
        if self.is_path:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(name) for name in self.one.one_of if name.startswith(incomplete)]


class KeyValue(click.ParamType):
    """KEY=VALUE; VALUE is read as JSON, and as text if it is not valid JSON.

    Args:
        text: whether values are texts even if they look like numbers, as names of columns may.
    """

    def __init__(self, text: bool = False) -> None:
        self.text, self.name = text, "COLUMN=NAME" if text else "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """Split at the first equals sign."""
        key, equals, literal = value.partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is not of the form {self.name}", param, ctx)
        if literal in OF_PYTHON and not self.text:  # the text "False" is true
            meant = f"{key}={OF_PYTHON[literal]}, or '{key}=\"{literal}\"'"
            self.fail(f"{value!r} would be a text; write {meant}", param, ctx)
        try:
            parsed = json.loads(literal)
        except (ValueError, RecursionError):  # also a number of too many digits
            return key, literal
        return key, literal if self.text and not isinstance(parsed, str) else parsed


def size(text: Any) -> int:
    """Return the bytes of a size such as 80G or 512M, of 2^30 and 2^20; a number of bytes as it is.

    Raises:
        ValueError: for any other text.
    """
    if isinstance(text, int):
        return text
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([MGT])(?:i?B)?", str(text).strip(), re.IGNORECASE)
    if match is None or not float(match[1]):
        raise ValueError(f"{text!r} is not a size such as 80G or 512M")
    return int(float(match[1]) * 2 ** {"M": 20, "G": 30, "T": 40}[match[2].upper()])


def stop_token(token: Any) -> Any:
    """Return a token by its text, or the id that a text of digits names; the environment refuses anything else."""
    return int(token) if isinstance(token, str) and re.fullmatch("[0-9]+", token) else token


def comma_separated(value: Any) -> Any:
    """Return a list of names as a text; anything else as it is."""
    is_list = isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value)
    return ",".join(value) if is_list else value


def no_value(value: Any) -> str:
    """Return the fault of a value, or of one in a tuple or table, that no option takes; empty for any other."""
    if isinstance(value, Mapping):
        value = (*value, *value.values())
    if isinstance(value, (tuple, list)):
        return next(filter(None, map(no_value, value)), "")
    if isinstance(value, float) and not math.isfinite(value):
        return f"must be a finite number, got {value}"
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"must be at most {LARGEST}, got {value}"
    if isinstance(value, (str, Path)) and any("\ud800" <= character <= "\udfff" for character in str(value)):
        shown = str(value).encode("utf-8", "backslashreplace").decode()
        return f"must be text in UTF-8, got '{shown}'; rename it, or type another"
    return ""
