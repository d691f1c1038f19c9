"""Problems from lists and files, in memory or mapped into it, and the splits that they belong to."""

from __future__ import annotations

import copy
import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from rlenv.verifiers import Problem
from rlenv.verifiers.base import Poser, right_turns
from rlenv.verifiers.conversation import shown
from rlenv.verifiers.dialogues import opened
from rlenv.verifiers.problem import as_split, template_parts

from .forms import ProblemFile
from .rows import (
    MappedRows,
    Row,
    check_columns,
    columns_of,
    digest_of,
    hash_text,
    made_of,
    read_rows,
)

SPLITS = ("train", "test")


@dataclass(frozen=True)
class Prompt:
    """A problem as an episode starts from it.

    Attributes:
        problem: as the verifier or the file poses it.
        tokens: of the prompt, as the model reads it.
        text: for the infos; of a conversation, its rendering with the chat template.
    """

    problem: Problem
    tokens: list[int] = field(default_factory=list)
    text: str = ""


class Problems(Sequence[Problem]):
    """Problems of a list or a file, or some of them, in their order.

    Args:
        rows: all problems of the list or file with their places; of one that is mapped into memory, its rows.
        path: of the file, or name of the data set, if any.
        digest: the hash of the file; empty for one of the problems.
        make: makes a problem of a mapped row.

    Attributes:
        kept: the numbers of their rows [N].
        encoded: of every row the tokens and the text of its prompt, None for one that is left out; None if prompts are
            encoded when they are posed.
    """

    def __init__(
        self,
        rows: Sequence[tuple[str, Any]],
        path: str | Path | None = None,
        digest: str = "",
        make: Callable[[Row], Problem] | None = None,
    ) -> None:
        self.rows, self.path, self._digest, self.make = rows, path, digest, make
        self.kept = np.arange(len(rows))
        self.encoded: Sequence[tuple[Sequence[int], str] | None] | None = None

    @classmethod
    def of(cls, items: Iterable[Problem | Mapping[str, Any] | Sequence[Any] | str]) -> Problems:
        """Return the problems in a list.

        Raises:
            ValueError: as `as_problem`, with the numbers of the problems.
        """
        return cls(made_of(None, ((f"problem {number}", item) for number, item in enumerate(items, 1)), as_problem))

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[row] for row in range(len(self))[index]]
        return self._problem(*self.rows[int(self.kept[index])])

    def __iter__(self) -> Iterator[Problem]:
        rows = self.rows if len(self) == len(self.rows) else map(self.rows.__getitem__, self.kept.tolist())
        return (self._problem(place, row) for place, row in rows)

    def _problem(self, place: str, row: Any) -> Problem:
        if self.make is None:
            return row
        return made_of(self.path, [(place, row)], self.make)[0][1]

    def only(self, kept: np.ndarray) -> Problems:
        """Return the problems that are marked, bool [N]."""
        some = copy.copy(self)
        some.kept = self.kept[kept]
        return some

    def posed(self, index: int) -> Problem | Prompt:
        """Return a problem, with its tokens if it is encoded."""
        problem = self[index]
        known = None if self.encoded is None else self.encoded[int(self.kept[index])]
        return problem if known is None else Prompt(problem, list(known[0]), known[1])

    def place(self, index: int) -> str:
        """Return where a problem stands, for error messages."""
        place = self.rows[int(self.kept[index])][0]
        return place if self.path is None else f"{str(self.path)!r}, {place}"

    @cached_property
    def _digest_of_all(self) -> str:
        rows = [[each.prompt, each.answer, dict(each.metadata)] for _, each in ([] if self._digest else self.rows)]
        return self._digest or hash_text(json.dumps(rows, default=repr))

    @property
    def digest(self) -> str:
        """A hash of the file, or of all problems of the list, and of which of them these are."""
        return hashlib.blake2b(self._digest_of_all.encode() + self.kept.tobytes(), digest_size=16).hexdigest()


def turns_of(verifier: Poser, problem: Problem) -> Sequence[str]:
    """Return the model's turns in a right episode; if the verifier chooses among several, always the same ones."""
    return right_turns(verifier, problem, random.Random(0))


def as_problem(item: Problem | Mapping[str, Any] | Sequence[Any] | str) -> Problem:
    """Return a Problem made from a Problem, a prompt, or a row with a `prompt` and optionally an `answer`.

    Raises:
        ValueError: as `Problem.from_row` and `Problem`.
    """
    if isinstance(item, Mapping):
        item = Problem.from_row(item)
    elif isinstance(item, (str, list, tuple)):
        item = Problem(item)  # type: ignore[arg-type]  # a list is checked there
    if not isinstance(item, Problem):
        raise ValueError(f"a problem is a prompt, a Problem or a mapping with a 'prompt', got {shown(item)}")
    return item


def listed_problems(file: ProblemFile, verifier: Poser | None = None) -> Problems | None:
    """Return the problems of a file or a list; None to have the verifier sample them.

    Args:
        file: a file, a list, or nothing.
        verifier: opens them; see `rlenv.verifiers.dialogues.opened`. None leaves them as they are listed.

    Raises:
        ValueError: for an empty list, for a table of columns, and any error of `load_problems` and `as_problem`.
    """
    found = _listed(file)
    if found is None or verifier is None or (made := opened(verifier, found)) is found:
        return found
    return Problems([(found.place(row), problem) for row, problem in enumerate(made)])


def _listed(file: ProblemFile) -> Problems | None:
    problems = file.problems
    if isinstance(problems, (str, Path)):
        return load_problems(problems, file.columns, file.prompt_template)
    if file.columns or file.prompt_template is not None:
        names = "columns (--column) and prompt_template (--prompt-template)"
        own = "Problem.from_row(row, columns, prompt_template) makes one of a row of yours"
        raise ValueError(f"{names} are for problems of a file: pass its path as problems (--problems); {own}")
    if problems is None:
        return None
    unordered = isinstance(problems, Set) or not hasattr(problems, "__len__")  # a set's order is that of one process
    if unordered or hasattr(problems, "keys"):  # keys: it lists its columns, or its splits
        raise ValueError(
            f"problems must be a file or a list of rows, got a {type(problems).__name__}; pass its rows, as "
            "list(...) of a generator, sorted(...) of a set, frame.to_dict('records') of pandas, or one split of a "
            "DatasetDict"
        )
    if not len(problems):
        raise ValueError("problems is an empty list; pass None to have the verifier sample them")
    return Problems.of(problems)


def load_problems(
    path: str | Path, columns: Mapping[str, str] | None = None, prompt_template: str | None = None
) -> Problems:
    """Return the problems of a file or a data set, in its order; see `Problem.from_row`.

    Rows of JSON, CSV and TSV are in memory. A Parquet file, a folder of `datasets` or a data set of the hub is mapped
    into memory: a row becomes a problem when it is asked for.

    Args:
        path: a .jsonl, .ndjson, .json (a list of objects), .csv, .tsv or .parquet file, or a folder of datasets'
            `save_to_disk`; text is UTF-8, with or without a byte order mark. "hf:org/name", "hf:org/name/config" and
            "hf:org/name@revision" are data sets of the hub. Several splits of a `DatasetDict` are a column `split`.
        columns: which column of the file to use, such as {"prompt": "question", "answer": "target"}. If the file also
            has a column "prompt", that one is then left out.
        prompt_template: makes the prompt from a row's columns, as in "Q: {question}\\nA:"; {name} is replaced, and {{
            and }} are braces.

    Raises:
        ValueError: in one line, for a file that cannot be read or has no rows, a missing column, a template that cannot
            be filled in, and malformed rows, with their line numbers; of mapped files, these when they are read.
    """
    fields = [] if prompt_template is None else template_parts(prompt_template)
    if not isinstance(columns or {}, Mapping) or not all(
        isinstance(name, str) for pair in (columns or {}).items() for name in pair
    ):
        raise ValueError(f"columns must be a mapping such as {{'prompt': 'question'}}, got {columns!r}")
    if not (isinstance(path, str) and path.startswith("hf:")):
        path = Path(path)
    rows = read_rows(path)
    names = _names(path, columns_of(rows), dict(columns or {}), prompt_template, [name for _, name in fields if name])
    content = rows.fingerprint if isinstance(rows, MappedRows) and isinstance(path, str) else digest_of(Path(path))
    digest = hash_text(f"{content}{names}{prompt_template}")
    make = partial(Problem.from_row, columns=names, prompt_template=prompt_template)
    if isinstance(rows, MappedRows):
        return Problems(rows, path, digest, make)
    return Problems(made_of(path, rows, make), path, digest)


def _names(
    path: str | Path, known: Sequence[str], columns: dict[str, str], prompt_template: str | None, fields: Sequence[str]
) -> dict[str, str]:
    """Return the columns of a file by the names they are used as, after checking that the file has them."""
    if prompt_template is None:
        columns.setdefault("prompt", "messages" if "messages" in known and "prompt" not in known else "prompt")
    asked = {name: "--prompt-template" for name in fields if name not in columns}
    asked |= {column: f"--column {name}=NAME" for name, column in columns.items()}
    check_columns(path, known, asked)
    return {"answer": "answer", **columns} if "answer" in known else columns


def side_of(named: Any, key: int, test_fraction: float) -> str:
    """Return the split of a problem or a pair: the one that it names, else that of the hash of its key.

    A key alone decides, so the two splits are always disjoint.

    Args:
        named: its value in a column `split`; None for none.
        key: the hash, of 8 bytes, of what it shares with those that a learner cannot tell apart from it.
        test_fraction: expected share of the test split, 0 to 1.

    Raises:
        ValueError: for an unknown split.
    """
    return as_split(named) or SPLITS[key < test_fraction * 2**64]


def is_level(level: Any) -> bool:
    """Tell whether a value is a valid level of difficulty: a whole number from 1."""
    return isinstance(level, int) and not isinstance(level, bool) and level >= 1
