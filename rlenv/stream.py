"""The seeded stream of problems: problem i depends on seed, split and i alone."""

from __future__ import annotations

import random
import warnings
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlenv.verifiers import Problem
from rlenv.verifiers.base import Poser

from .problems import SPLITS, Problems, Prompt, hash_of, side_of

FACTS = np.dtype(  # about a listed problem
    [
        ("key", "u8"),  # the hash of its split key
        ("named", "?"),  # whether it names its split
        ("test", "?"),  # whether it is in the test split
    ]
)
_TRIES = 10_000
_KEPT = 4096  # sampled problems; making one may start a game, and evaluations pose and count the same ones again


class EmptySplitError(ValueError):
    """No listed problem is in the split that was asked for."""


class ProblemStream:
    """An endless sequence of the problems of one split, with random access.

    Listed problems come once per epoch, shuffled by seed and epoch; otherwise the verifier samples problems. If a
    listed problem's metadata names its "split" (train, test, or validation, which counts as test), it belongs to that
    split; the others are assigned by a hash.

    Args:
        verifier: samples the problems unless they are listed; its `split_key` says which problems belong together.
        split: "train" or "test".
        test_fraction: expected share of the test split, 0 to 1; 0 uses everything for training.
        problems: the problems, or None to have the verifier sample them.
        encode: returns a problem with its tokens, None for one that is too long; by default without tokens. Problems
            that the list has encoded are not encoded again.

    Attributes:
        listed: the listed problems of this split; empty if the verifier samples them.
        sizes: how many listed problems each split has; empty if the verifier samples them.
        names_splits: whether any listed problem names its split.

    Raises:
        ValueError: for a malformed problem or one with an unknown split, or no listed problem in this split.
    """

    def __init__(
        self,
        verifier: Poser,
        split: str = "train",
        test_fraction: float = 0.2,
        problems: Sequence[Problem | Mapping[str, Any] | str] | None = None,
        encode: Callable[[Problem], Prompt | None] = Prompt,
    ) -> None:
        self.verifier, self.split, self.test_fraction = verifier, split, test_fraction
        self.seed = 0
        self._encode = encode
        self._shuffled: tuple[int, int, Sequence[int]] | None = None
        self.sizes: dict[str, int] = {}
        self.names_splits = False
        self._made: dict[tuple[int, int], Prompt] = {}  # by seed and index
        self.listed = Problems([])
        if problems is not None:
            self.listed = self._of_this_split(problems if isinstance(problems, Problems) else Problems.of(problems))

    @property
    def digest(self) -> str:
        """A hash of the listed problems of this split; empty if the verifier samples them."""
        return self.listed.digest if self.listed else ""

    def state_dict(self) -> dict[str, Any]:
        """Return the seed and a hash of the listed problems, in plain values."""
        return {"seed": self.seed, "digest": self.digest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from `state_dict`.

        Raises:
            ValueError: if these are other problems.
        """
        if state["digest"] != self.digest:
            raise ValueError(
                "the problems have changed since the checkpoint was written: use the file it was made with"
            )
        self.seed = state["seed"]

    def __getitem__(self, index: int) -> Problem:
        """Return problem number `index` of this seed and split."""
        return self.prompt(index).problem

    def prompt(self, index: int) -> Prompt:
        """Return problem number `index` of this seed and split, as the model reads it.

        A listed problem that is too long gives its place to another one, drawn at random.

        Raises:
            ValueError: if all of many problems are too long, and any error of `encode` and of the verifier.
        """
        place = self.seed, index
        if place not in self._made:
            rng = random.Random(f"{self.seed}/{self.split}/{index}")
            if self.listed:
                epoch, position = divmod(index, len(self.listed))
                row = self._order(self.seed, epoch)[position]
                self._made[place] = self._of_list(row, range(len(self.listed)), rng)
            else:
                self._made[place] = self._sampled(rng, self.verifier.sample)
            if len(self._made) > _KEPT:
                del self._made[next(iter(self._made))]  # the oldest
        return self._made[place]

    def distinct(self, count: int) -> int:
        """Return how many different problems are among the first `count`.

        Two are the same if their prompts, reference answers and split keys are equal.
        """
        first = map(self.__getitem__, range(min(count, len(self.listed) or count)))
        return len({(each.text, each.answer, self.verifier.split_key(each)) for each in first})

    def _sampled(self, rng: random.Random, sample: Callable[[random.Random], Problem]) -> Prompt:
        for _ in range(_TRIES):
            problem = sample(rng)
            _, _, is_test = self._fact(problem)
            if SPLITS[is_test] == self.split and (prompt := self._encode(problem)) is not None:
                return prompt
        wanted = f"in the {self.split} split (test_fraction={self.test_fraction}) and short enough (max_prompt_tokens)"
        remedy = "if all prompts are alike, override split_key"
        raise ValueError(f"the verifier sampled {_TRIES} problems, but none was {wanted}; {remedy}")

    def _of_list(self, row: int, others: Sequence[int], rng: random.Random) -> Prompt:
        """Return a listed problem, or the first of others, drawn at random, that is short enough."""
        for _ in range(_TRIES):
            if (prompt := self.listed.prompt(row, self._encode)) is not None:
                return prompt
            row = rng.choice(others)
        raise ValueError(f"of {_TRIES} listed problems none was short enough; pass a larger --max-prompt-tokens")

    def _order(self, seed: int, epoch: int) -> Sequence[int]:
        """Return the shuffled order of one epoch; the last result is cached."""
        if self._shuffled is None or self._shuffled[:2] != (seed, epoch):
            order = array("Q", range(len(self.listed)))
            random.Random(f"{seed}/{self.split}/{epoch}").shuffle(order)
            self._shuffled = (seed, epoch, order)
        return self._shuffled[2]

    def _fact(self, problem: Problem) -> tuple[int, bool, bool]:
        key, named = hash_of(self.verifier.split_key(problem)), problem.metadata.get("split")
        return key, named is not None, side_of(named, key, self.test_fraction) == "test"

    def _of_this_split(self, problems: Problems) -> Problems:
        """Return the listed problems of this split."""
        facts = np.fromiter(map(self._fact, problems), FACTS, len(problems))
        keys, tests = facts["key"], facts["test"]
        self.sizes = {"train": int((~tests).sum()), "test": int(tests.sum())}
        self.names_splits = bool(facts["named"].any())
        if shared := len(np.intersect1d(keys[~tests], keys[tests])):
            warnings.warn(f"problems that are in both splits: {shared}", stacklevel=2)
        here = tests if self.split == "test" else ~tests
        listed = problems.only(here)
        if not len(listed):
            test_fraction, other = self.test_fraction, "train" if self.split == "test" else "test"
            raise EmptySplitError(
                f"none of the {len(problems)} problems is in the {self.split} split ({test_fraction=}), all are in "
                f"{other}; 1 puts all of them into test, 0 into train, and a column `split` says it for each"
            )
        return listed
