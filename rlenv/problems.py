"""The seeded stream of problems: problem number i is a function of (seed, split, i) and nothing else."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Any

from verifiers import Problem, Verifier

SPLITS = ("train", "test")
_TRIES = 10_000


def in_test_split(key: str, test_fraction: float) -> bool:
    """Tell on which side of the train/test border a problem with this split key lies.

    The side is a hash of the key, so the two splits are disjoint by construction, whatever was sampled before.

    Args:
        key: `verifier.split_key(problem)`.
        test_fraction: expected share of the test split, 0 to 1.
    """
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < test_fraction * 2**64


def as_problem(item: Problem | Mapping[str, Any] | str) -> Problem:
    """Return a Problem made from a Problem, a prompt, or a mapping with a `prompt` and maybe an `answer`.

    Raises:
        ValueError: if a mapping has no prompt.
    """
    if isinstance(item, Problem):
        return item
    if isinstance(item, str):
        return Problem(item)
    if not isinstance(item, Mapping) or not isinstance(item.get("prompt"), str):
        raise ValueError(f"a problem is a prompt, a Problem or a mapping with a 'prompt', got {item!r}")
    metadata = {key: value for key, value in item.items() if key not in ("prompt", "answer")}
    return Problem(item["prompt"], str(item.get("answer", "")), metadata)


class ProblemStream:
    """An endless sequence of the problems of one split, with random access.

    Where the problems are a list, every problem comes once an epoch, in an order shuffled by seed and epoch;
    otherwise the verifier samples them.

    Args:
        verifier: makes the problems where there is no list, and says which belong together.
        split: "train" or "test".
        test_fraction: expected share of the test split, 0 to 1; with 0 everything is for training.
        problems: the problems, or None where the verifier samples them.

    Raises:
        ValueError: for an unknown split, a fraction outside 0..1, or a split that holds none of the listed problems.
    """

    def __init__(
        self,
        verifier: Verifier,
        split: str = "train",
        test_fraction: float = 0.2,
        problems: Sequence[Problem | Mapping[str, Any] | str] | None = None,
    ) -> None:
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r}; allowed: {', '.join(SPLITS)}")
        if not 0.0 <= test_fraction <= 1.0:
            raise ValueError(f"test_fraction must be from 0 to 1, got {test_fraction!r}")
        self.verifier, self.split, self.test_fraction = verifier, split, test_fraction
        self.seed = 0
        self._shuffled: tuple[int, int, list[int]] | None = None
        self._listed: list[Problem] | None = None
        if problems is not None:
            self._listed = [problem for problem in map(as_problem, problems) if self._belongs(problem)]
            if not self._listed:
                raise ValueError(f"none of the {len(problems)} problems is in the {split} split ({test_fraction=})")

    @property
    def listed(self) -> list[Problem]:
        """The problems of this split where they are a list, else none."""
        return list(self._listed or ())

    def __getitem__(self, index: int) -> Problem:
        """Return problem number `index` of this seed and split."""
        if self._listed is not None:
            epoch, position = divmod(index, len(self._listed))
            return self._listed[self._order(self.seed, epoch)[position]]
        rng = random.Random(f"{self.seed}/{self.split}/{index}")
        for _ in range(_TRIES):
            problem = self.verifier.sample(rng)
            if self._belongs(problem):
                return problem
        raise ValueError(f"{_TRIES} sampled problems, none of them in the {self.split} split ({self.test_fraction=})")

    def _order(self, seed: int, epoch: int) -> list[int]:
        """Return the shuffled order of one epoch; the last one asked for is remembered."""
        if self._shuffled is None or self._shuffled[:2] != (seed, epoch):
            order = list(range(len(self._listed or ())))
            random.Random(f"{seed}/{self.split}/{epoch}").shuffle(order)
            self._shuffled = (seed, epoch, order)
        return self._shuffled[2]

    def _belongs(self, problem: Problem) -> bool:
        return in_test_split(self.verifier.split_key(problem), self.test_fraction) == (self.split == "test")
