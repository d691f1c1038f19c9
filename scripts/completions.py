"""The file of an evaluation: every completion as one JSON line, block by block, so that it can be continued.

A block is some problems with all their samples. A greedy completion depends on its problem alone, and what is sampled
on the seed and the block alone: a file that was continued equals one that was written without a break, and on one
process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.files import Lock, read_table

from .progress import say
from .run import check_place, read_lines, write_json

BLOCK = 1024  # completions; so many, per process, are lost at most when the command is killed
Row = dict[str, Any]


@dataclass(frozen=True)
class Block:
    """Problems `start` to `start + count - 1`, each answered `samples` times; mode is "greedy" or "sampled"."""

    mode: str
    samples: int
    start: int
    count: int

    @property
    def lines(self) -> int:
        """The number of its completions."""
        return self.count * self.samples


def blocks(modes: Mapping[str, int], problems: int, processes: int = 1) -> list[Block]:
    """Return the blocks of an evaluation in the order in which they are written.

    Args:
        modes: how often each problem is answered in each mode.
        problems: how many there are.
        processes: that share them: greedy blocks are smaller for more, sampled ones are not.
    """
    made = []
    for mode, samples in modes.items():
        equal = -(-problems // processes) if mode == "greedy" else problems
        size = max(1, min(BLOCK // samples, equal))
        made += [Block(mode, samples, start, min(size, problems - start)) for start in range(0, problems, size)]
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
        lines = self.path.read_bytes().split(b"\n")[:-1] if self.path.exists() else []
        good = next((number for number, line in enumerate(lines) if not _is_object(line)), len(lines))
        if good < len(lines):
            say(f"line {good + 1} of {str(self.path)!r} is damaged: the evaluation goes on before it")
        whole = kept = 0
        while whole < len(planned) and kept + planned[whole].lines <= good:
            whole, kept = whole + 1, kept + planned[whole].lines
        with self.path.open("ab") as file:
            file.truncate(sum(len(line) + 1 for line in lines[:kept]))
        return planned[whole:]

    def add(self, rows: list[Row]) -> None:
        """Append the completions of a block."""
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(text)

    def rows(self) -> list[Row]:
        """Return all completions."""
        return read_lines(self.path, dict)

    def finish(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Keep the figures of the complete file, and return them."""
        self.figures = figures
        write_json(self.facts, {"settings": self.settings, "figures": figures})
        return figures


@contextmanager
def opened(
    out: Path | None, home: Path, name: str, settings: dict[str, Any], overwrite: bool
) -> Iterator[CompletionFile]:
    """Yield the file of an evaluation, which no other process writes meanwhile.

    Args:
        out: the user's choice; None for a file in `home`.
        home: the folder of the evaluations of a run.
        name: the readable part of the file's name; the other is a digest of the settings.
        settings: of the evaluation.
        overwrite: whether to begin again.

    Raises:
        ValueError: if the file cannot be written, or another process writes it, or it holds something else.
    """
    if out is not None and out.suffix != ".jsonl":
        raise ValueError(f"--out {str(out)!r} must end in .jsonl; settings and figures go into a .json file beside it")
    digest = hashlib.blake2b(json.dumps(settings, default=str, sort_keys=True).encode(), digest_size=4).hexdigest()
    path = home / f"{name}-{digest}.jsonl" if out is None else out
    check_place(path.parent)
    busy = f"another process is writing {str(path)!r}; wait for it, or pass another --out"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = Lock(path.with_name(f".{path.name}-lock"), busy)
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be written ({error.strerror}); pass another --out FILE") from error
    with lock:
        yield CompletionFile(path, settings, overwrite)


def _is_object(line: bytes) -> bool:
    with suppress(ValueError, RecursionError):
        return isinstance(json.loads(line), dict)
    return False
