"""Files with a JSON object, read so that errors name them; the module imports nothing of rlenv."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def plain(value: Any) -> Any:
    """Return a path as its text, and a single number of numpy or torch as Python's own.

    Raises:
        TypeError: for any other object, as `json.dumps(default=plain)` needs it.
    """
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    raise TypeError(f"JSON holds no {type(value).__name__}")


def read_table(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        ValueError: if the file is missing, or holds anything else.
    """
    if not file.is_file():
        raise ValueError(f"{str(file)!r} is damaged: it is missing")
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError) as error:
        raise ValueError(f"{str(file)!r} is damaged: {error}") from error
    if not isinstance(table, dict):
        raise ValueError(f"{str(file)!r} is damaged: it holds no JSON object")
    return table
