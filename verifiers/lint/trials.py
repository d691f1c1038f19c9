"""Runs a verifier on all cases: alone, in a batch and in another order, and measures the time."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from ..base import VERIFIER_FAILED, Verdict, Verifier, checked, describe
from ..sandbox.pool import isolate
from .attacks import Case

HANGS = 10.0  # seconds
ALONE = 32  # completions that a slow or isolated verifier judges alone, and again


@dataclass
class Trial:
    """A case and its verdicts: alone, in a batch, in a batch of another order; exceptions have the status "error"."""

    case: Case
    verdicts: list[Verdict] = field(default_factory=list)
    seconds: float | None = None  # alone
    success: bool = False
    earned: bool = False  # more than 0, or than the lowest reward if that is above 0

    @property
    def paid(self) -> bool:
        """Whether it was paid for although it is not right; an empty text must not earn a part either."""
        return not self.case.honest and (self.success or (self.earned and self.case.family == "empty"))

    @property
    def failure(self) -> Verdict | None:
        """The first verdict with which the verifier failed."""
        return next((verdict for verdict in self.verdicts if verdict.status in VERIFIER_FAILED), None)

    @property
    def changed(self) -> bool:
        """Whether two verdicts differ."""
        return len({(verdict.reward, verdict.status) for verdict in self.verdicts}) > 1


def try_all(verifier: Verifier, cases: Sequence[Case]) -> list[Trial]:
    """Judge all cases one at a time, in a batch, and in a batch of another order.

    A slow or isolated verifier judges a part alone and again. If one in this process hangs, it is interrupted, and the
    trials end with a verdict "timeout".
    """
    trials, dear = [Trial(case) for case in cases], verifier.slow or verifier.isolated
    some = random.Random(0).sample(trials, min(ALONE, len(trials))) if dear else trials
    judge = isolate(verifier)
    try:
        for trial in some:
            started = time.perf_counter()
            trial.verdicts += _judged(judge, [trial.case], alone=True, longest=0 if dear else HANGS)
            trial.seconds = time.perf_counter() - started
            if not dear and trial.verdicts[0].status == "timeout":
                break
        else:
            for batch in (trials, random.Random(1).sample(some, len(some))):
                usable = [trial for trial in batch if not trial.failure]
                for trial, verdict in zip(usable, _judged(judge, [trial.case for trial in usable]), strict=True):
                    trial.verdicts.append(verdict)
    finally:
        if judge is not verifier:
            judge.close()
    nothing, judged = max(0.0, verifier.reward_range[0]), [trial for trial in trials if trial.verdicts]
    for trial in judged:
        verdict = trial.verdicts[0]
        trial.success = verdict.status == "ok" and verifier.is_success(verdict)
        trial.earned = verdict.status == "ok" and verdict.reward > nothing
    return judged


def _judged(verifier: Verifier, cases: Sequence[Case], alone: bool = False, longest: float = 0) -> list[Verdict]:
    try:
        with _limit(longest):
            problems, texts = [case.problem for case in cases], [case.text for case in cases]
            made = [verifier.verify(problems[0], texts[0])] if alone else verifier.verify_batch(problems, texts)
            verdicts = checked(verifier, made, len(cases))
            for verdict in verdicts:
                if verdict.status == "ok":
                    verifier.is_success(verdict)  # must not raise
            return verdicts
    except _TooLongError:
        failed = Verdict(0.0, status="timeout", reason=f"no verdict after {longest:g} seconds")
    except (Exception, SystemExit) as error:
        failed = Verdict(0.0, status="error", reason=("" if alone else "in a batch: ") + describe(error))
    return [failed] * len(cases)


class _TooLongError(BaseException):
    """Not an Exception, so that the verifier under test does not catch it by accident."""


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raise if the block takes longer; 0 for no limit. Works only in the main thread of a system with alarms."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise _TooLongError

    handler = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
