"""Runs a verifier on all cases: one at a time, again, in batches and in other orders, and measures the time."""

from __future__ import annotations

import math
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from types import FrameType

from ..base import Problem, Verdict, Verifier, words_of
from ..isolation.workers.pool import isolate
from .cases import Case

HANGS = 10.0  # seconds
ALONE = 32  # completions that a slow verifier judges alone as well
AGAIN = 128  # completions that a slow verifier judges a second time


@dataclass(frozen=True)
class Outcome:
    """The outcome of one completion: its verdict, or why there is none."""

    reward: float | None = None
    status: str = ""
    success: bool = False
    fault: str = ""  # why the verdict is missing
    reason: str = field(default="", compare=False)


@dataclass
class Trials:
    """The outcomes of all cases, by the number of the case."""

    first: dict[int, Outcome] = field(default_factory=dict)
    again: dict[int, Outcome] = field(default_factory=dict)  # in another order; of a slow verifier `AGAIN` cases
    others: list[dict[int, Outcome]] = field(default_factory=list)  # in batches, or alone if the first was in one
    seconds: dict[int, float] = field(default_factory=dict)  # alone; the shorter of two times
    hung: int | None = None  # the case that took too long; the trials end there
    batch_fault: str = ""  # why a batch has no verdicts


@dataclass(frozen=True)
class Examined:
    """A verifier and the outcomes of all cases."""

    verifier: Verifier
    problems: Sequence[Problem]
    own: bool  # whether these are its own problems
    cases: Sequence[Case] = ()
    trials: Trials = field(default_factory=Trials)

    @cached_property
    def graded(self) -> bool:
        """Whether right answers or plain wrong ones earn partial credit; without any, whether an attack does."""
        plain = [number for number, case in enumerate(self.cases) if case.honest or case.plain]
        return any(self.earned(number) for number in plain or range(len(self.cases)))

    @cached_property
    def paid(self) -> list[int]:
        """The attacks that were paid for; see the rule `attack`."""
        return [number for number, case in enumerate(self.cases) if case.attack and self._is_paid(number, case)]

    @cached_property
    def raised(self) -> list[int]:
        """The completions whose reward a wrong answer raised."""
        return [
            number for number, case in enumerate(self.cases)
            if case.base is not None and self.reward(number) > self.reward(case.base)
        ]  # fmt: skip

    def reward(self, number: int) -> float:
        """Return the reward of a case; if it has none, what counts as nothing."""
        outcome = self.trials.first[number]
        return outcome.reward if outcome.status == "ok" and outcome.reward is not None else self._nothing

    def earned(self, number: int) -> bool:
        """Tell whether a case earned something without being a success."""
        return not self.trials.first[number].success and self.reward(number) > self._nothing

    @property
    def _nothing(self) -> float:
        return max(0.0, self.verifier.reward_range[0])

    def _is_paid(self, number: int, case: Case) -> bool:
        strict = not self.graded or case.family == "empty"
        return self.trials.first[number].success or (strict and self.earned(number))


class _TooLongError(BaseException):
    """Not an Exception, so that the verifier under test does not catch it by accident."""


def try_all(verifier: Verifier, cases: Sequence[Case]) -> Trials:
    """Judge all cases: one at a time, again from last to first, and in two batches."""
    if verifier.isolated or verifier.slow:
        judge = isolate(verifier)
        try:
            return _try_slow(judge, cases, AGAIN if verifier.slow else len(cases))
        finally:
            if judge is not verifier:
                judge.close()
    trials = Trials()
    for outcomes, order in ((trials.first, range(len(cases))), (trials.again, range(len(cases) - 1, -1, -1))):
        for number in order:
            try:
                with _limit(HANGS):
                    outcomes[number], took = _judge_one(verifier, cases[number])
            except _TooLongError:
                trials.hung = number
                return trials
            trials.seconds[number] = min(took, trials.seconds.get(number, took))
    judged = [number for number, outcome in trials.first.items() if not outcome.fault]
    for batch in (judged, random.Random(0).sample(judged, len(judged))):
        try:
            trials.others.append(_judge_batch(verifier, cases, batch))
        except Exception as error:
            trials.batch_fault = fault(error)
            break
    return trials


def _try_slow(verifier: Verifier, cases: Sequence[Case], again: int) -> Trials:
    """Judge all cases in one batch, some again in another order, and some one at a time."""
    numbers = list(range(len(cases)))
    trials = Trials()
    try:
        trials.first = _judge_batch(verifier, cases, numbers)
        trials.again = _judge_batch(verifier, cases, random.Random(1).sample(numbers, min(again, len(numbers))))
    except Exception as error:
        trials.batch_fault = fault(error)
    some = random.Random(0).sample(numbers, min(ALONE, len(numbers))) if trials.again else numbers
    alone = {number: _judge_one(verifier, cases[number]) for number in some}
    trials.others.append({number: outcome for number, (outcome, _) in alone.items()})
    trials.first = trials.first or trials.others[0]
    trials.seconds = {number: took for number, (_, took) in alone.items()}
    return trials


def _judge_one(verifier: Verifier, case: Case) -> tuple[Outcome, float]:
    started = time.perf_counter()
    try:
        verdict = verifier.verify(case.problem, case.text)
        took = time.perf_counter() - started
        return _outcome(verifier, verdict), took
    except (Exception, SystemExit) as error:
        return Outcome(fault=fault(error)), time.perf_counter() - started


def _judge_batch(verifier: Verifier, cases: Sequence[Case], order: Sequence[int]) -> dict[int, Outcome]:
    chosen = [cases[number] for number in order]
    verdicts = list(verifier.verify_batch([case.problem for case in chosen], [case.text for case in chosen]))
    if len(verdicts) != len(order):
        raise ValueError(f"{len(verdicts)} verdicts for {len(order)} completions")
    return {number: _outcome(verifier, verdict) for number, verdict in zip(order, verdicts, strict=True)}


def _outcome(verifier: Verifier, verdict: object) -> Outcome:
    if not isinstance(verdict, Verdict):
        return Outcome(fault=f"returned {type(verdict).__name__} instead of a Verdict")
    for name, number in {"reward": verdict.reward, **verdict.parts}.items():
        if not isinstance(number, Real) or not math.isfinite(number):
            return Outcome(fault=f"the number {name!r} of the verdict is {number!r}")
    return Outcome(float(verdict.reward), verdict.status, verifier.is_success(verdict), reason=verdict.reason)


def fault(error: BaseException) -> str:
    """Return an exception in one line."""
    lines = words_of(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raise if the block takes longer; works only in the main thread of a system with alarm signals."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise _TooLongError

    handler = signal.signal(signal.SIGALRM, stop)
    started = time.monotonic()
    others, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        # Restore an alarm that was already set.
        left = max(others - (time.monotonic() - started), 1e-3) if others else 0.0
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, left)
