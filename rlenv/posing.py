"""A verifier for other libraries: problems by seed, and episodes turn by turn."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from rlenv.verifiers import Problem, Reply, Verdict, Verifier, isolate
from rlenv.verifiers.base import in_range
from rlenv.verifiers.dialogues import opened

from .judge import Exchange, Judge

SEEDS = 2**31


def as_text(value: Any) -> Any:
    """Return a text unchanged, any other value as JSON: clients that read a turn such as "32" as JSON send a number."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class Posed:
    """A verifier whose problems are numbered by seeds, for several episodes at once.

    Args:
        verifier: judges. Without worker processes it is asked by one episode at a time, since few are thread-safe.
        problems: to choose from; None to have the verifier make them.
    """

    def __init__(self, verifier: Verifier, problems: Sequence[Problem] | None = None) -> None:
        self.verifier, self.problems = verifier, problems
        self.judge = Judge(verifier, isolate(verifier), flag_errors=True)
        self._lock = threading.Lock()

    def problem(self, seed: int, level: int | None = None) -> Problem:
        """Return the problem of a seed, of one level if it is given.

        Raises:
            ValueError: for a level that the verifier does not have, or a verifier that makes no problems, without any.
        """
        rng = random.Random(seed)
        if self.problems:
            return opened(self.verifier, [rng.choice(self.problems)])[0]
        if level is not None and not (isinstance(level, int) and 1 <= level <= self.verifier.levels):
            raise ValueError(f"level must be a whole number from 1 to {self.verifier.levels}, got {level!r:.40}")
        with self._lock:
            level = rng.randint(1, self.verifier.levels) if level is None else level
            return self.verifier.sample_at(rng, level)

    def begin(self, problem: Problem) -> Episode:
        """Return an episode about a problem."""
        return Episode(self, Exchange(problem, False, []))

    def ask(self, exchange: Exchange, out_of_budget: bool = False) -> Reply:
        """Return the reply to the last turn, or the verdict on an episode that is out of budget."""
        with nullcontext() if self.judge.pool is not None or self.verifier.execution.waits else self._lock:
            return self.judge.replies([exchange], out_of_budget)[0]

    def close(self) -> None:
        """Stop the worker processes and close the verifier."""
        for each in (self.judge.pool, self.verifier):
            if each is not None:
                each.close()


@dataclass
class Episode:
    """One episode.

    Attributes:
        posed: the verifier.
        exchange: its problem and turns.
        verdict: once it is over.
    """

    posed: Posed
    exchange: Exchange
    verdict: Verdict | None = None

    @property
    def reward(self) -> float | None:
        """The sum of all rewards so far; None if the verifier failed."""
        if self.verdict is None:
            return self.exchange.paid
        return float(self.exchange.paid + self.verdict.reward) if self.verdict.status == "ok" else None

    def say(self, turn: str) -> Reply:
        """Take a turn; return the reply, which has a verdict if the episode is over, also for want of turns.

        Raises:
            ValueError: after the end.
        """
        if self.verdict is not None:
            raise ValueError("the episode is over")
        said = self.exchange
        said.turns.append(turn)
        reply = self.posed.ask(said)
        said.paid += reply.reward
        said.counts.update(reply.counts)
        if reply.verdict is not None:
            return replace(reply, verdict=self._end(reply.verdict))
        is_last = len(said.turns) >= self.posed.verifier.turns.max_turns
        return replace(reply, verdict=self.give_up()) if is_last else reply

    def give_up(self) -> Verdict:
        """End the episode before its dialogue does, and return the verdict."""
        verdict = self.posed.ask(self.exchange, out_of_budget=True).verdict
        assert verdict is not None
        return self._end(verdict)

    def close(self) -> None:
        """Release the resources of the episode's exchange, such as its dialogue."""
        self.posed.judge.close(self.exchange)

    def _end(self, verdict: Verdict) -> Verdict:
        self.close()
        self.verdict = in_range(self.posed.verifier, verdict, self.exchange.paid)
        return self.verdict
