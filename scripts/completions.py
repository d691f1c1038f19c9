"""Keeps every completion of an evaluation as one JSON line, block by block; a file can be continued.

A block is some problems with all their samples. What is sampled in it depends on the seed and the block alone, so a
file that was continued equals one that was written without a break.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from agents.files import read_table

from .progress import say
from .run import read_lines, write_json

BLOCK = 1024  # completions; so many, per process, are lost at most when the command is killed
Row = dict[str, Any]


@dataclass(frozen=True)
class Pass:
    """One way to answer all the problems.

    Args:
        mode: "greedy" or "sampled".
        samples: completions per problem.
    """

    mode: str
    samples: int


@dataclass(frozen=True)
class Block:
    """Problems `start` to `start + count - 1`, with all samples of a pass."""

    of: Pass
    start: int
    count: int

    @property
    def lines(self) -> int:
        """Return how many completions it has."""
        return self.count * self.of.samples


def blocks(passes: list[Pass], problems: int) -> list[Block]:
    """Return the blocks of an evaluation in the order in which they are played and written."""
    made = []
    for one in passes:
        size = max(1, BLOCK // one.samples)
        made += [Block(one, start, min(size, problems - start)) for start in range(0, problems, size)]
    return made


class CompletionFile:
    """A .jsonl file of completions, and beside it a .json file with the settings and, at the end, the figures.

    Args:
        path: of the .jsonl file.
        settings: everything that decides what is in the file.
        overwrite: whether to begin again.

    Attributes:
        figures: of a complete file; None for any other.

    Raises:
        ValueError: if the file is of other settings.
    """

    def __init__(self, path: Path, settings: dict[str, Any], overwrite: bool = False) -> None:
        self.path, self.facts = path, path.with_suffix(".json")
        self.settings = json.loads(json.dumps(settings, default=str))
        self.figures: dict[str, Any] | None = None
        if overwrite:
            self.remove()
        if self.facts.exists():
            saved = read_table(self.facts)
            if saved.get("settings") != self.settings:
                raise ValueError(
                    f"{str(path)!r} holds another evaluation (its settings are in {self.facts.name}); "
                    "pass another --out, or --overwrite to replace it"
                )
            self.figures = saved.get("figures") if path.exists() else None
        elif path.exists():
            raise ValueError(f"{str(path)!r} is not an evaluation: there is no {self.facts.name} beside it")

    def remove(self) -> None:
        """Delete both files."""
        self.facts.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    def resume(self, planned: list[Block]) -> list[Block]:
        """Drop what does not belong to a whole block, and what follows damage; return the blocks that are missing."""
        if not self.facts.exists():
            write_json(self.facts, {"settings": self.settings})
        data = self.path.read_bytes() if self.path.exists() else b""
        ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord("\n")) + 1  # of whole lines
        good = sum(1 for _ in takewhile(_is_object, data.split(b"\n")[: len(ends)]))
        if good < len(ends):
            say(f"line {good + 1} of {str(self.path)!r} is damaged: the evaluation goes on before it")
            ends = ends[:good]
        whole = lines = 0
        for block in planned:
            if lines + block.lines > len(ends):
                break
            whole, lines = whole + 1, lines + block.lines
        with self.path.open("ab") as file:
            file.truncate(int(ends[lines - 1]) if lines else 0)
        return planned[whole:]

    def add(self, rows: list[Row]) -> None:
        """Append the completions of a block."""
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(text)

    def rows(self) -> list[Row]:
        """Return all completions."""
        return read_lines(self.path, dict)

    def finish(self, figures: dict[str, Any]) -> None:
        """Keep the figures of the complete file."""
        self.figures = figures
        write_json(self.facts, {"settings": self.settings, "figures": figures})


def _is_object(line: bytes) -> bool:
    """Tell whether a line is a JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
