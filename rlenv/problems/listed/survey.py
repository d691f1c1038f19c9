"""What the index tells about problems together: splits, groups, and prompts with several answers."""

from __future__ import annotations

import math

import numpy as np

from .listed import SIDES, Listed


def held_out(named: np.ndarray, keys: np.ndarray, test_fraction: float) -> np.ndarray:
    """Return whether each problem is in the test split.

    Args:
        named: the split that it names, as its place in `SIDES`.
        keys: the hash of its split key, which decides if it names none.
        test_fraction: expected share of the test split, 0 to 1.
    """
    end = math.ceil(test_fraction * 2**64)  # as whole numbers: a float rounds a hash
    hashed = np.ones(len(keys), bool) if end > np.iinfo(np.uint64).max else keys < np.uint64(end)
    return np.where(named == 0, hashed, named == SIDES.index("test"))


def answered_twice(listed: Listed) -> tuple[int, tuple[int, int] | None]:
    """Return how many prompts come with answers that differ, and two problems with the first of these prompts."""
    texts, answers = listed.texts(), listed.answers()
    rows = np.flatnonzero(answers)
    order = rows[np.argsort(texts[rows], kind="stable")]
    again = np.concatenate(([False], texts[order[1:]] == texts[order[:-1]])) if len(order) else np.zeros(0, bool)
    if not again.any():
        return 0, None
    groups = np.cumsum(~again)  # of the rows in `order`, by prompt; each in the order of the list
    first = order[np.flatnonzero(~again)][groups - 1]
    differs = answers[order] != answers[first]
    prompts, places = np.unique(groups[differs], return_index=True)
    if not len(prompts):
        return 0, None
    others = order[differs][places]
    which = int(np.argmin(first[differs][places]))
    return len(prompts), (int(first[differs][places][which]), int(others[which]))


class Groups:
    """Problems by number: by their level, or those with one split key.

    Args:
        of_each: the number of each problem.
    """

    def __init__(self, of_each: np.ndarray) -> None:
        self._order = np.argsort(of_each, kind="stable")
        self._numbers, starts = np.unique(of_each[self._order], return_index=True)
        self._ends = [*starts, len(of_each)]

    @property
    def numbers(self) -> list[int]:
        """The numbers of all groups."""
        return self._numbers.tolist()

    @classmethod
    def by_level(cls, listed: Listed) -> Groups:
        """Return the problems of each level."""
        return cls(listed.levels())

    @classmethod
    def by_key(cls, keys: np.ndarray) -> Groups:
        """Return the problems of each split key; keys are numbered in the order in which they come first."""
        _, first, of_each = np.unique(keys, return_index=True, return_inverse=True)
        numbers = np.empty(len(first), np.int64)
        numbers[np.argsort(first)] = np.arange(len(first))
        return cls(numbers[of_each])

    def rows(self, number: int) -> np.ndarray:
        """Return the problems with a number, in their order."""
        place = int(np.searchsorted(self._numbers, number))
        return self._order[self._ends[place] : self._ends[place + 1]]
