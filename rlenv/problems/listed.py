"""Listed problems: those of a list or a file, in memory or mapped into it, and the facts that one pass finds."""

from __future__ import annotations

import copy
import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from verifiers import Problem, Verifier
from verifiers.conversation import shown

from ..text.texts import NOT_UNICODE, is_unicode
from .rows import Row, hash_text, made_of
from .splits import hash_of, is_level, named_side

if TYPE_CHECKING:  # it takes seconds to import
    from ..text.encoder import Encoder

SIDES = (None, "train", "test")  # the split that a problem names, by its number
FACTS = np.dtype(
    [
        ("row", "i8"),  # its number in the list or file
        ("key", "u8"),  # the hash of its split key
        ("side", "i1"),  # the split that it names, as its place in `SIDES`
        ("level", "i8"),  # its difficulty; 0 if that is not a whole number from 1
        ("prompt", "i8"),  # tokens that its prompt has at most; see `Encoder.most_tokens`
        ("turn", "i8"),  # tokens that the longest turn of its demonstration has at most
    ]
)
_UNUSED = random.Random(0)  # for a method that does not draw; making one takes longer than the rest


class Problems(Sequence[Problem]):
    """Problems of a list or a file, or some of them, in their order.

    Args:
        rows: all problems of the list or file with their places; of one that is mapped into memory, its rows.
        path: of the file, if any.
        digest: the hash of the file; empty for one of the problems.
        make: makes a problem of a mapped row.

    Attributes:
        facts: about the problems in this sequence, `FACTS` [N]; until `surveyed`, only which they are.
        columns: the names of all metadata; None until `surveyed`.
    """

    def __init__(
        self,
        rows: Sequence[tuple[str, Any]],
        path: Path | None = None,
        digest: str = "",
        make: Callable[[Row], Problem] | None = None,
    ) -> None:
        self.rows, self.path, self._digest, self.make = rows, path, digest, make
        self.facts = np.zeros(len(rows), FACTS)
        self.facts["row"] = np.arange(len(rows))
        self.columns: set[str] | None = None

    @classmethod
    def of(cls, items: Iterable[Problem | Mapping[str, Any] | Sequence[Any] | str]) -> Problems:
        """Return the problems in a list.

        Raises:
            ValueError: as `as_problem`, with the numbers of the problems.
        """
        return cls(made_of(None, ((f"problem {number}", item) for number, item in enumerate(items, 1)), as_problem))

    def surveyed(self, verifier: Verifier, encoder: Encoder | None = None, has_turns: bool = False) -> Problems:
        """Return all problems with the facts about them, after one pass.

        Args:
            verifier: has split keys and demonstrations.
            encoder: tells how many tokens texts have; None if that does not matter.
            has_turns: whether demonstrations matter, too.

        Raises:
            ValueError: for a malformed row, or a problem with an unknown split.
        """
        columns = set[str]()

        def fact(row: int, problem: Problem) -> tuple[int, ...]:
            columns.update(problem.metadata)
            level, side = problem.metadata.get("level", 1), SIDES.index(named_side(problem))
            prompt = turn = 0
            if encoder is not None:
                prompt = encoder.most_tokens(problem.prompt)
            if encoder is not None and has_turns:
                turn = max((encoder.most_tokens(text, False) for text in turns_of(verifier, problem)), default=0)
            key = hash_of(verifier.split_key(problem))
            return row, key, side, level if is_level(level) else 0, prompt, turn

        made = copy.copy(self)
        made.facts = np.fromiter((fact(row, each) for row, each in enumerate(self)), FACTS, len(self))
        made.columns = columns
        return made

    def __len__(self) -> int:
        return len(self.facts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[row] for row in range(len(self))[index]]
        return self._problem(*self.rows[int(self.facts["row"][index])])

    def __iter__(self) -> Iterator[Problem]:
        rows = self.rows if len(self) == len(self.rows) else (self.rows[int(row)] for row in self.facts["row"])
        return (self._problem(place, row) for place, row in rows)

    def _problem(self, place: str, row: Any) -> Problem:
        if self.make is None:
            return row
        return made_of(self.path, [(place, row)], self.make)[0][1]

    def only(self, kept: np.ndarray) -> Problems:
        """Return the problems that are marked, bool [N]."""
        some = copy.copy(self)
        some.facts = self.facts[kept]
        return some

    def place(self, index: int) -> str:
        """Return where a problem stands, for error messages."""
        place = self.rows[int(self.facts["row"][index])][0]
        return place if self.path is None else f"{str(self.path)!r}, {place}"

    @cached_property
    def _digest_of_all(self) -> str:
        rows = [[each.prompt, each.answer, dict(each.metadata)] for _, each in ([] if self._digest else self.rows)]
        return self._digest or hash_text(json.dumps(rows, default=repr))

    @property
    def digest(self) -> str:
        """A hash of the file, or of all problems of the list, and of which of them these are."""
        return hashlib.blake2b(self._digest_of_all.encode() + self.facts["row"].tobytes(), digest_size=16).hexdigest()


def turns_of(verifier: Verifier, problem: Problem) -> Sequence[str]:
    """Return the model's turns in a right episode, always the same ones of those that the verifier chooses from."""
    own = getattr(verifier.demonstration_turns, "__func__", None) is not Verifier.demonstration_turns
    return verifier.demonstration_turns(problem, random.Random(0) if own else _UNUSED)


def as_problem(item: Problem | Mapping[str, Any] | Sequence[Any] | str) -> Problem:
    """Return a Problem made from a Problem, a prompt, or a row with a `prompt` and optionally an `answer`.

    Raises:
        ValueError: as `Problem.from_row`, or for a malformed conversation, or texts that cannot be encoded.
    """
    if isinstance(item, Mapping):
        item = Problem.from_row(item)
    elif isinstance(item, (str, list, tuple)):
        item = Problem(item)  # type: ignore[arg-type]  # a list is checked there
    if not isinstance(item, Problem):
        raise ValueError(f"a problem is a prompt, a Problem or a mapping with a 'prompt', got {shown(item)}")
    if not is_unicode(item.text + item.answer):
        raise ValueError(NOT_UNICODE)
    return item
