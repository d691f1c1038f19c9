"""What lists of problems have in common, and those in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from verifiers import Problem

from ..row_problems import MESSAGES
from ..splits import hash_of, is_level, named_side

if TYPE_CHECKING:  # it takes seconds to import
    from ...text.encoder import Encoder

SIDES = (None, "train", "test")  # the split that a problem names, by its code


class Listed(Protocol):
    """Problems in an order, with what full passes over them have found."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Problem: ...

    def __iter__(self) -> Iterator[Problem]: ...

    def blocks(self) -> Iterator[Sequence[Problem]]:
        """Yield the problems in order, as many at once as memory allows."""

    def only(self, rows: np.ndarray) -> Listed:
        """Return the problems with these numbers, in their order."""

    def place(self, index: int) -> str:
        """Return where a problem stands, for an error message."""

    def kept(self, name: str, depends: Any, find: Callable[[], np.ndarray], length: int | None = None) -> np.ndarray:
        """Return what a pass over the problems finds, or has found before.

        Args:
            name: of what is found.
            depends: what it depends on beside the problems, in plain values; None if that cannot be said.
            find: makes the pass.
            length: of what is found; None if it is not known before.
        """

    def prompt_lengths(self, encoder: Encoder) -> np.ndarray:
        """Return the number of tokens of each prompt.

        Raises:
            ValueError: for a prompt that the encoder refuses.
        """

    def texts(self) -> np.ndarray:
        """Return the hash of each prompt's text; see `splits.hash_of`."""

    def answers(self) -> np.ndarray:
        """Return the hash of each answer; 0 for none."""

    def sides(self) -> np.ndarray:
        """Return the split that each problem names, as its place in `SIDES`.

        Raises:
            ValueError: if one names an unknown split.
        """

    def levels(self) -> np.ndarray:
        """Return the level of each problem; 1 if it has none.

        Raises:
            ValueError: if one has another level than a whole number from 1.
        """

    def columns(self) -> set[str]:
        """Return the names of all metadata."""


class ProblemList(list[Problem]):
    """Problems in memory.

    Args:
        problems: these.
        place: names a problem in error messages, given its index; None for its number.
    """

    def __init__(self, problems: Iterable[Problem] = (), place: Callable[[int], str] | None = None) -> None:
        super().__init__(problems)
        self._place = place

    def blocks(self) -> Iterator[Sequence[Problem]]:
        """Yield all of them at once."""
        yield self

    def only(self, rows: np.ndarray) -> ProblemList:
        """Return the problems with these numbers, in their order."""
        return ProblemList(self[row] for row in rows.tolist())

    def place(self, index: int) -> str:
        """Return where a problem stands, for an error message."""
        return f"problem {index + 1}" if self._place is None else self._place(index)

    def kept(self, name: str, depends: Any, find: Callable[[], np.ndarray], length: int | None = None) -> np.ndarray:
        """Return what a pass over the problems finds; it is short, and nothing is kept."""
        return find()

    def prompt_lengths(self, encoder: Encoder) -> np.ndarray:
        """Return the number of tokens of each prompt, which the encoder remembers."""
        return np.array([len(ids) for ids in encoder.prompts([problem.prompt for problem in self])], np.uint32)

    def texts(self) -> np.ndarray:
        """Return the hash of each prompt's text."""
        return np.array([hash_of(problem.text) for problem in self], np.uint64)

    def answers(self) -> np.ndarray:
        """Return the hash of each answer; 0 for none."""
        return np.array([hash_of(problem.answer) if problem.answer else 0 for problem in self], np.uint64)

    def sides(self) -> np.ndarray:
        """Return the split that each problem names, as its place in `SIDES`."""
        return np.array([SIDES.index(named_side(problem)) for problem in self], np.uint8)

    def levels(self) -> np.ndarray:
        """Return the level of each problem; 1 if it has none."""
        levels = [problem.metadata.get("level", 1) for problem in self]
        if wrong := [level for level in levels if not is_level(level)]:
            raise ValueError(f"with a curriculum, a problem's level must be a whole number from 1, got {wrong[0]!r}")
        return np.array(levels)

    def columns(self) -> set[str]:
        """Return the names of all metadata."""
        return {name for problem in self for name in problem.metadata}


def as_problem(item: Problem | Mapping[str, Any] | Sequence[Any] | str) -> Problem:
    """Return a Problem made from a Problem, a prompt, or a mapping with a `prompt` and optionally an `answer`.

    Without a `prompt`, the `messages` of a mapping are it, as in a file.

    Raises:
        ValueError: if a mapping has no prompt, or a conversation is malformed.
    """
    if isinstance(item, Problem):
        return item
    if isinstance(item, (str, list, tuple)):
        return Problem(item)  # type: ignore[arg-type]  # a list is checked there
    column = MESSAGES if isinstance(item, Mapping) and "prompt" not in item and MESSAGES in item else "prompt"
    if not isinstance(item, Mapping) or not isinstance(item.get(column), (str, list, tuple)):
        raise ValueError(f"a problem is a prompt, a Problem or a mapping with a 'prompt', got {item!r}")
    metadata = {key: value for key, value in item.items() if key not in (column, "answer")}
    return Problem(item[column], str(item.get("answer", "")), metadata)
