"""Which split a problem belongs to, and its level of difficulty."""

from __future__ import annotations

import hashlib
from typing import Any

from verifiers import Problem, Verifier
from verifiers.base import NAMED_SPLITS

SPLITS = ("train", "test")


def hash_of(text: str) -> int:
    """Return the 64-bit hash of a text that decides between the splits."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def in_test_split(key: str, test_fraction: float) -> bool:
    """Tell whether a problem with this split key belongs to the test split.

    This depends on a hash of the key only, so the two splits are always disjoint.

    Args:
        key: `verifier.split_key(problem)`.
        test_fraction: expected share of the test split, 0 to 1.
    """
    return hash_of(key) < test_fraction * 2**64


def hashed_side(problem: Problem, verifier: Verifier, test_fraction: float) -> str:
    """Return the split that the hash of a problem's split key assigns it to."""
    return "test" if in_test_split(verifier.split_key(problem), test_fraction) else "train"


def named_side(problem: Problem) -> str | None:
    """Return the split that a listed problem names; None if it names none.

    Raises:
        ValueError: if it names an unknown split.
    """
    split = problem.metadata.get("split")
    if split is None:
        return None
    if not isinstance(split, str) or split not in NAMED_SPLITS:
        raise ValueError(f"a problem's split must be one of {', '.join(NAMED_SPLITS)}, got {split!r}")
    return NAMED_SPLITS[split]


def is_level(level: Any) -> bool:
    """Tell whether a value is a valid level of difficulty: a whole number from 1."""
    return isinstance(level, int) and not isinstance(level, bool) and level >= 1


def level_of(problem: Problem) -> int:
    """Return a problem's level of difficulty, from 1; without a valid level in its metadata, 1."""
    level = problem.metadata.get("level", 1)
    return level if is_level(level) else 1
