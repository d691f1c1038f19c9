"""A verifier whose problems are another one's."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from .base import Problem, Verifier


class Posed(Verifier):
    """Leaves everything about problems to the verifier `poser`, and judges in its own way.

    Attributes:
        poser: makes the problems and says what is right and wrong for them.
    """

    poser: Verifier

    @property
    def makes_problems(self) -> bool:
        """Whether the poser does."""
        return self.poser.makes_problems

    def sample(self, rng: random.Random) -> Problem:
        """Return what the poser samples."""
        return self.poser.sample(rng)

    def sample_at(self, rng: random.Random, level: int) -> Problem:
        """Return what the poser samples at this level."""
        return self.poser.sample_at(rng, level)

    def examples(self) -> list[Problem]:
        """Return the poser's examples."""
        return self.poser.examples()

    def paraphrases(self, problem: Problem) -> list[str]:
        """Return the poser's paraphrases."""
        return self.poser.paraphrases(problem)

    def demonstration(self, problem: Problem) -> str:
        """Return the poser's demonstration."""
        return self.poser.demonstration(problem)

    def counterexamples(self, problem: Problem) -> Mapping[str, Sequence[str]]:
        """Return the poser's counterexamples."""
        return self.poser.counterexamples(problem)

    def split_key(self, problem: Problem) -> str:
        """Return the poser's split key."""
        return self.poser.split_key(problem)
