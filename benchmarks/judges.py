"""Verifiers for the benchmarks; worker processes import this file, so it imports the verifiers only."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rlenv.verifiers import Dialogue, Problem, Reply, Verdict, Verifier

DELAY = 0.05


class Indifferent(Verifier):
    """Generates another verifier's problems and accepts every completion."""

    def __init__(self, inner: Verifier) -> None:
        self.inner = inner
        self.alphabet, self.prompt_length, self.answer_length = inner.alphabet, inner.prompt_length, inner.answer_length

    def sample(self, rng: Any) -> Problem:
        """Return a problem of the other verifier."""
        return self.inner.sample(rng)

    def split_key(self, problem: Problem) -> str:
        """Return the other verifier's key."""
        return self.inner.split_key(problem)

    def verify_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """Return a reward of 1 for each."""
        return [Verdict(1.0)] * len(problems)


class Slow(Indifferent):
    """Waits 50 ms before each verdict, as if a service judged."""

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Judge after a while."""
        time.sleep(DELAY)
        return self.inner.verify(problem, completion)

    def verify_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """Judge one after the other."""
        return Verifier.verify_batch(self, problems, completions)


class SlowReply(Slow):
    """Gives the same verdicts as replies to the first turn of dialogues, for which a slot waits."""

    def dialogue(self, problem: Problem) -> Dialogue:
        """Return the other side of an episode."""
        return _Judging(self, problem)


class _Judging(Dialogue):
    def __init__(self, verifier: Verifier, problem: Problem) -> None:
        self.verifier, self.problem = verifier, problem

    def reply(self, turn: str) -> Reply:
        """Judge the turn."""
        return Reply(verdict=self.verifier.verify(self.problem, turn))

    def out_of_budget(self) -> Verdict:
        """Return the verdict on no answer."""
        return Verdict(0.0)
