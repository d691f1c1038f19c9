"""Files of JSON that another library reads, whose errors do not name them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from rlenv.verifiers.base import first_line


def check_objects(files: Iterable[Path]) -> None:
    """Check that each file that exists holds a JSON object.

    Raises:
        ValueError: in one line, naming the first that does not.
    """
    for file in files:
        if not file.exists():
            continue
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise damaged(file, error) from error
        if not isinstance(found, dict):
            raise damaged(file, "it holds no JSON object")


def damaged(file: Path, why: BaseException | str) -> ValueError:
    """Return the error about a file."""
    if isinstance(why, KeyError):
        why = f"it has no {why}"
    return ValueError(f"{str(file)!r} is damaged: {first_line(why) if isinstance(why, BaseException) else why}")
