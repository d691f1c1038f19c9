"""Listed problems, with the facts about them that one pass over all finds."""

from __future__ import annotations

import hashlib
import random
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from verifiers import Problem, Verifier
from verifiers.conversation import shown

from .files import Problems
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
        ("text", "i8"),  # hashes that tell equal ones in this process
        ("answer", "i8"),
    ]
)
_UNUSED = random.Random(0)  # for a method that does not draw; making one takes longer than the rest


def turns_of(verifier: Verifier, problem: Problem) -> Sequence[str]:
    """Return the model's turns in a right episode, always the same ones of those that the verifier chooses from."""
    own = getattr(verifier.demonstration_turns, "__func__", None) is not Verifier.demonstration_turns
    return verifier.demonstration_turns(problem, random.Random(0) if own else _UNUSED)


class Listed(Sequence[Problem]):
    """Problems of a list or a file, or some of them, in their order.

    Args:
        problems: of the list or file.
        facts: about those in this sequence, `FACTS` [N].
        columns: the names of all metadata.
    """

    def __init__(self, problems: Problems, facts: np.ndarray, columns: set[str]) -> None:
        self.problems, self.facts, self.columns = problems, facts, columns

    @classmethod
    def of(
        cls, problems: Problems, verifier: Verifier, encoder: Encoder | None = None, has_turns: bool = False
    ) -> Listed:
        """Return all problems, after one pass over them.

        Args:
            problems: of a list or a file.
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
                turn = max(map(encoder.most_tokens_of_text, turns_of(verifier, problem)), default=0)
            key, texts = hash_of(verifier.split_key(problem)), (hash(problem.text), hash(problem.answer))
            return row, key, side, level if is_level(level) else 0, prompt, turn, *texts

        facts = (fact(row, problem) for row, problem in enumerate(problems))
        return cls(problems, np.fromiter(facts, FACTS, len(problems)), columns)

    def __len__(self) -> int:
        return len(self.facts)

    def __getitem__(self, index: Any) -> Any:
        return self.problems[int(self.facts["row"][index])]

    def only(self, kept: np.ndarray) -> Listed:
        """Return the problems that are marked, bool [N]."""
        return Listed(self.problems, self.facts[kept], self.columns)

    def place(self, index: int) -> str:
        """Return where a problem stands, for error messages."""
        return self.problems.place(int(self.facts["row"][index]))

    @property
    def digest(self) -> str:
        """A hash of the problems."""
        made = self.problems.digest.encode() + self.facts["row"].tobytes()
        return hashlib.blake2b(made, digest_size=16).hexdigest()

    def warn_of_contradictions(self) -> None:
        """Say how many prompts come with several answers that differ, and name two."""
        texts, answers = self.facts["text"], self.facts["answer"]
        order = np.argsort(texts, kind="stable")
        order = order[answers[order] != hash("")]
        texts, answers = texts[order], answers[order]
        differs = np.flatnonzero((texts[:-1] == texts[1:]) & (answers[:-1] != answers[1:]))
        if len(differs):
            place = differs[order[differs + 1].argmin()]
            first, second = self[order[place]], self[order[place + 1]]
            warnings.warn(
                f"prompts with several answers that differ: {len(set(texts[differs].tolist()))}, such as "
                f"{shown(first.text)} with {shown(first.answer)} and {shown(second.answer)}; keep one row of each",
                stacklevel=2,
            )
