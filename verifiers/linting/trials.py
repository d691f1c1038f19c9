"""Have a verifier judge everything: one at a time, again, in batches, in other orders, with the clock running."""

from __future__ import annotations

import math
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Real
from types import FrameType

from ..base import Verdict, Verifier, words_of
from ..isolation import isolate
from .corpus import Case

HANGS = 10.0  # seconds
ALONE = 32  # completions that a slow verifier judges alone as well
AGAIN = 128  # completions that a slow verifier judges a second time


@dataclass(frozen=True)
class Outcome:
    """What came of one completion.

    Args:
        reward: the reward; None where there is no verdict.
        status: the verdict's status.
        success: whether it counts as solved.
        fault: why there is no verdict, else empty.
        reason: what the verdict says went wrong.
    """

    reward: float | None = None
    status: str = ""
    success: bool = False
    fault: str = ""
    reason: str = field(default="", compare=False)


@dataclass
class Trials:
    """The outcomes of all cases, by the number of the case.

    Args:
        first: the outcome of each case.
        again: the outcomes of a second time, in another order; of a slow verifier those of `AGAIN` cases.
        others: outcomes in batches where the first was alone, or alone where it was in a batch.
        seconds: how long a verdict took alone; the shorter time where it was reached twice.
        hung: the number of the case that took too long; the trials end there.
        batch_fault: why a batch has no verdicts, else empty.
    """

    first: dict[int, Outcome] = field(default_factory=dict)
    again: dict[int, Outcome] = field(default_factory=dict)
    others: list[dict[int, Outcome]] = field(default_factory=list)
    seconds: dict[int, float] = field(default_factory=dict)
    hung: int | None = None
    batch_fault: str = ""


class _TooLongError(BaseException):
    """Not an Exception: the verifier under test must not be able to swallow it by accident."""


def try_all(verifier: Verifier, cases: Sequence[Case]) -> Trials:
    """Return what a verifier makes of all cases: alone, again from the last to the first, and in two batches."""
    if verifier.isolated or verifier.slow:
        return _try_slow(isolate(verifier), cases, AGAIN if verifier.slow else len(cases))
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
    """Return what a slow verifier makes of all cases in a batch, of some in another order again, and of some alone."""
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
    verdicts = list(
        verifier.verify_batch([cases[number].problem for number in order], [cases[number].text for number in order])
    )
    if len(verdicts) != len(order):
        raise ValueError(f"{len(verdicts)} verdicts for {len(order)} completions")
    return {number: _outcome(verifier, verdict) for number, verdict in zip(order, verdicts, strict=True)}


def _outcome(verifier: Verifier, verdict: object) -> Outcome:
    if not isinstance(verdict, Verdict):
        return Outcome(fault=f"returned {type(verdict).__name__} instead of a Verdict")
    if not isinstance(verdict.reward, Real):
        return Outcome(fault=f"the reward is of type {type(verdict.reward).__name__}, which is no number")
    broken = [name for name, part in verdict.parts.items() if not isinstance(part, Real) or not math.isfinite(part)]
    if broken:
        return Outcome(fault=f"the part {broken[0]!r} of the verdict is {verdict.parts[broken[0]]!r}")
    return Outcome(float(verdict.reward), verdict.status, verifier.is_success(verdict), reason=verdict.reason)


def fault(error: BaseException) -> str:
    """Return an exception in one line."""
    lines = words_of(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raise when the block takes longer; only a main thread on a system with alarms can be interrupted so."""
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
        left = (
            max(others - (time.monotonic() - started), 1e-3) if others else 0.0
        )  # an alarm that somebody else had set
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, left)
