"""Full passes over listed problems, which ask the verifier about each."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from verifiers import Problem, Verifier
from verifiers.weighted import Weighted

from ..splits import hash_of
from .listed import Listed

if TYPE_CHECKING:  # it takes seconds to import
    from ...text.encoder import Encoder

DEMONSTRATION = ("demonstration", "demonstration_turns")
DIGEST = 16  # bytes
_OURS = "verifiers.builtin."
_UNUSED = random.Random(0)  # for a method that does not draw; making one takes longer than the rest


def turns_of(verifier: Verifier, problem: Problem) -> Sequence[str]:
    """Return the model's turns in a right episode, always the same ones of those that the verifier chooses from."""
    chooses = _function(verifier, "demonstration_turns") is not Verifier.demonstration_turns
    return verifier.demonstration_turns(problem, random.Random(0) if chooses else _UNUSED)


def characters(listed: Listed, verifier: Verifier) -> set[str]:
    """Return the characters of all prompts, answers and demonstrations."""

    def find() -> np.ndarray:
        found: set[str] = set()
        for block in listed.blocks():
            found = found.union(*_texts(verifier, block))
        return np.array(sorted(map(ord, found)), np.uint32)

    return set(map(chr, listed.kept("characters", depends_on(verifier, *DEMONSTRATION), find).tolist()))


def _texts(verifier: Verifier, problems: Sequence[Problem]) -> Iterator[str]:
    for problem in problems:
        yield problem.text
        yield problem.answer
        yield from turns_of(verifier, problem)


def longest_demonstration(
    listed: Listed, verifier: Verifier, encoder: Encoder, most: int, too_long: Callable[[int, str, int], ValueError]
) -> int:
    """Return the length of the longest demonstrated turn in tokens, with its end token; 0 if nothing is demonstrated.

    Args:
        listed: the problems.
        verifier: demonstrates.
        encoder: for the tokens.
        most: tokens that are allowed.
        too_long: makes the error for more, from the index of the problem, its longest turn and that one's length.
    """

    def find() -> np.ndarray:
        longest, some, over = 0, False, None
        for start, block in _numbered(listed):
            turns = [turns_of(verifier, problem) for problem in block]
            some = some or any(map(any, turns))
            counts = iter(encoder.counted_ids([turn for each in turns for turn in each]))
            for index, each in enumerate(turns, start):
                length = 1 + max((next(counts) for _ in each), default=0)
                longest = max(longest, length)
                if length > most and over is None:
                    over = index, max(each, key=len, default=""), length
        if some and over is not None:
            raise too_long(*over)
        return np.array([longest if some else 0], np.uint32)

    depends = depends_on(verifier, *DEMONSTRATION)
    known = None if depends is None or encoder.identity is None else [depends, encoder.identity, most]
    return int(listed.kept("longest demonstration", known, find, 1)[0])


def _numbered(listed: Listed) -> Iterator[tuple[int, Sequence[Problem]]]:
    start = 0
    for block in listed.blocks():
        yield start, block
        start += len(block)


def split_keys(listed: Listed, verifier: Verifier) -> np.ndarray:
    """Return the hash of each problem's split key."""
    depends = depends_on(verifier, "split_key")
    if depends is not None and depends[0] == "text":
        return listed.texts()

    def find() -> np.ndarray:
        return np.array([hash_of(verifier.split_key(problem)) for problem in listed], np.uint64)

    return listed.kept("split keys", depends, find, len(listed))


def digest(listed: Listed) -> str:
    """Return a hash of all problems."""

    def find() -> np.ndarray:
        made, between = hashlib.blake2b(b"[", digest_size=DIGEST), b""
        for problem in listed:
            row = json.dumps([problem.prompt, problem.answer, dict(problem.metadata)], default=repr)
            made.update(between + row.encode())
            between = b", "
        made.update(b"]")
        return np.frombuffer(made.digest(), np.uint8)

    return listed.kept("digest", [], find, DIGEST).tobytes().hex()


def depends_on(verifier: Verifier, *methods: str) -> list[Any] | None:
    """Return in plain values what these methods depend on beside the problem; None if that cannot be said.

    It can be said of methods that the verifier inherits, and of verifiers of this package whose settings are plain.
    """
    own = [name for name in methods if _function(verifier, name) is not getattr(Verifier, name)]
    if not own:
        return ["text", verifier.has_dialogues]
    kind = type(verifier)
    if set(own) & vars(verifier).keys():
        return None
    if isinstance(verifier, Weighted) and kind is Weighted:
        first = depends_on(verifier.first, *methods)
        return None if first is None else [first[0], verifier.has_dialogues, first]
    if not kind.__module__.startswith(_OURS):
        return None
    try:
        settings = json.dumps(vars(verifier), sort_keys=True, default=_plain)
    except TypeError:
        return None
    return [f"{kind.__module__}.{kind.__qualname__}", verifier.has_dialogues, settings]


def _function(verifier: Verifier, name: str) -> Any:
    return getattr(getattr(verifier, name), "__func__", None)


def _plain(value: Any) -> Any:
    if isinstance(value, (Fraction, Decimal)):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {type(value).__name__: {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}}
    raise TypeError(f"{value!r} is not plain")
