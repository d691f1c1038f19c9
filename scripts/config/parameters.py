"""Types of options: KEY=VALUE, sizes, files of problems, tokens."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import click

LARGEST = 2**63 - 1


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
            parsed = json.loads(literal)
        except json.JSONDecodeError:
            return key, literal
        return key, literal if self.text and not isinstance(parsed, str) else parsed


class Size(click.ParamType):
    """A number of bytes, such as 80G or 512M: of 2^30 and 2^20."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([MGT])(?:i?B)?", str(value).strip(), re.IGNORECASE)
        if match is None or not float(match[1]):
            self.fail(f"{value!r} is not a size such as 80G or 512M", param, ctx)
        return int(float(match[1]) * 2 ** {"M": 20, "G": 30, "T": 40}[match[2].upper()])


class ProblemSource(click.Path):
    """A file, as an absolute path for a run continued from elsewhere; or a data set of the hub, as it is."""

    def __init__(self) -> None:
        super().__init__(resolve_path=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or the name of the data set."""
        return value if str(value).startswith("hf:") else super().convert(value, param, ctx)


class StopToken(click.ParamType):
    """A token by its text, or by its id."""

    name = "TEXT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | int:
        """Return the text or the id."""
        return int(value) if re.fullmatch("[0-9]+", str(value)) else str(value)


def no_value(value: Any) -> str:
    """Return the fault of a value, or of one in a tuple, that no option takes; empty for any other."""
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
