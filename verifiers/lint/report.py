"""`lint` checks whether a verifier can be trusted: it judges all cases in three ways, and returns a report."""

from __future__ import annotations

import math
import random
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from types import FrameType
from typing import Any

from rlenv._status import VERIFIER_FAILED

from ..base import (
    CARRIED,
    Completion,
    NoProblemsError,
    Problem,
    Verdict,
    Verifier,
    check_inputs,
    checked,
    describe,
    extracted,
    has_dialogues,
    is_success,
    right_turns,
    sample_each,
    split_key_of,
)
from ..conversation import last_of
from ..dialogues import begin, reply_to
from ..isolation import isolate
from ..sandbox.pool import Isolated
from ..text import shorten
from .attacks import ATTACKS, LISTS, WRONG, Case, cases_of

USUAL, LONGEST = 0.005, 1.0  # seconds
SAMPLED = 50  # problems
HANGS = 10.0  # seconds
ALONE = 32  # completions that a slow or isolated verifier judges alone, and again
RULES = {
    "failed": "Every text gets a verdict in its range, alone and in a batch: no exception, nor one of `extract`.",
    "deterministic": "A completion gets the same verdict again: alone, in a batch, in any order.",
    "right": "Demonstrations, also those of several turns, and right probes are successes.",
    "attack": "No attack, wrong probe or wrong answer is a success; an empty text earns nothing.",
    "partial": "Saying everything earns no part: a list with the right answer in it, no more than one without.",
    "problems": "Problems are made without an error, the same for the same seed, in the declared alphabet and lengths.",
    "declared": "Every attack in `does_not_catch` exists, and is really paid for.",
    "speed": "Half of the verdicts take at most 5 ms, and all at most 1 s, unless it declares `slow` or `isolated`.",
}


@dataclass(frozen=True)
class BrokenRule:
    """A rule that a verifier broke, and the first completion of a kind with which it did."""

    rule: str
    explanation: str
    family: str = ""  # of the completion; empty if it is about none
    problem: str = ""  # shortened
    completion: str = ""  # shortened
    reward: float | None = None
    times: int = 1  # how many completions of this kind


@dataclass
class Report:
    """The findings of lint: the broken rules, and counts."""

    verifier: str
    findings: list[BrokenRule] = field(default_factory=list)
    problems: int = 0
    without_demonstration: int = 0  # problems without a right answer to try
    attacks: int = 0
    false_accepts: int = 0  # attacks that were paid for, including declared ones
    declared: dict[str, int] = field(default_factory=dict)  # paid for, by attack in `does_not_catch`
    honest: int = 0  # right completions
    false_rejects: int = 0  # right completions that were not a success
    partial: int = 0  # attacks that earned a part of a success
    most: float = 0.0  # reward of one of these
    median: float = 0.0  # seconds per verdict

    @property
    def passed(self) -> bool:
        """Whether no rule was broken."""
        return not self.findings

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data for JSON."""
        return {**asdict(self), "passed": self.passed}


def lint(verifier: Verifier, problems: Sequence[Problem] | None = None, name: str = "") -> Report:
    """Check a verifier against the rules in `RULES`.

    Args:
        verifier: the verifier.
        problems: the problems to try; None for the verifier's examples.
        name: for the report; the name of the class by default.

    Returns:
        The report; `report.passed` tells whether all rules hold.

    Raises:
        NoProblemsError: a ValueError, without any problems to try.
    """
    report = Report(name or type(verifier).__name__)
    try:
        chosen = list(verifier.examples() if problems is None else problems)
        check_inputs(verifier, chosen)
        sampled = _sampled(verifier) if problems is None else []
        cases = cases_of(verifier, chosen, sampled)
        report.findings += _of_problems(verifier, sampled) if problems is None else ()
        shown = [right_turns(verifier, problem, random.Random(0)) for problem in chosen]
        report.without_demonstration = [*map(any, shown)].count(False)
    except NoProblemsError:
        raise
    except Exception as error:
        report.findings.append(BrokenRule("problems", describe(error)))
        return report
    if not chosen:
        raise NoProblemsError(f"no problems to try verifier {report.verifier} with")
    report.problems = len(chosen)
    trials = try_all(verifier, cases)
    _count(report, verifier, trials)
    report.findings += [*_of_verdicts(verifier, trials), *_of_extracts(verifier, cases)]
    report.findings += _of_declarations(verifier, trials, own=problems is None)
    if has_dialogues(verifier):
        report.findings += _of_dialogues(verifier, zip(chosen, shown, strict=True))
    return report


@dataclass
class Trial:
    """A case and its verdicts: alone, in a batch, in a batch of another order; exceptions have the status "error"."""

    case: Case
    verdicts: list[Verdict] = field(default_factory=list)
    seconds: float | None = None  # alone
    success: bool = False
    earned: bool = False  # more than 0, or than the lowest reward if that is above 0
    gain: float = 0.0  # of a list with the right answer in it: its reward above that of wrong answers alone

    @property
    def paid(self) -> bool:
        """Whether it was paid for although it is not right; an empty text must not earn a part either."""
        return not self.case.honest and (self.success or (self.earned and self.case.family == "empty"))

    @property
    def listed(self) -> bool:
        """Whether saying everything earned a part of a success."""
        return self.gain > 0 and not self.paid

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
    trials, dear = [Trial(case) for case in cases], verifier.execution.slow or verifier.execution.isolated
    some = random.Random(0).sample(trials, min(ALONE, len(trials))) if dear else trials
    pool = isolate(verifier)
    judge = pool or verifier
    try:
        for trial in some:
            started = time.perf_counter()
            trial.verdicts += verdicts_of(verifier, judge, [trial.case], alone=True, longest=0 if dear else HANGS)
            trial.seconds = time.perf_counter() - started
            if not dear and trial.verdicts[0].status == "timeout":
                break
        else:
            for batch in (trials, random.Random(1).sample(some, len(some))):
                usable = [trial for trial in batch if not trial.failure]
                for trial, verdict in zip(
                    usable, verdicts_of(verifier, judge, [trial.case for trial in usable]), strict=True
                ):
                    trial.verdicts.append(verdict)
    finally:
        if pool is not None:
            pool.close()
    nothing, judged = max(0.0, verifier.reward_range[0]), [trial for trial in trials if trial.verdicts]
    for trial in judged:
        verdict = trial.verdicts[0]
        trial.success = is_success(verifier, verdict)
        trial.earned = verdict.status == "ok" and verdict.reward > nothing
    _set_gains(judged)
    return judged


def _set_gains(trials: Sequence[Trial]) -> None:
    """Set the gain of each list with the right answer: its reward minus the best reward of a text of wrong answers."""
    tried = [trial for trial in trials if trial.case.family in (*LISTS, WRONG) and trial.verdicts[0].status == "ok"]
    best = max((float(trial.verdicts[0].reward) for trial in tried if not trial.case.says_it), default=math.inf)
    for trial in tried:
        if trial.case.says_it and trial.case.family in LISTS:
            trial.gain = max(float(trial.verdicts[0].reward) - best, 0.0)


def verdicts_of(
    verifier: Verifier, judge: Verifier | Isolated, cases: Sequence[Case], alone: bool = False, longest: float = 0
) -> list[Verdict]:
    """Return the verdicts on cases, alone or in a batch; an exception is a verdict with the status "error"."""
    try:
        with _limit(longest):
            problems, texts = [case.problem for case in cases], [_said(verifier, case.text) for case in cases]
            made = [judge.verify(problems[0], texts[0])] if alone else judge.verify_batch(problems, texts)
            return checked(verifier, made, len(cases))
    except (Exception, SystemExit, _TooLongError) as error:
        return [_failed(error, longest, "" if alone else "in a batch: ")] * len(cases)


def _failed(error: BaseException, longest: float, where: str = "") -> Verdict:
    """Return the verdict that stands for an exception, or for more than the `longest` time in seconds."""
    if isinstance(error, _TooLongError):
        return Verdict(0.0, status="timeout", reason=f"no verdict after {longest:g} seconds")
    return Verdict(0.0, status="error", reason=where + describe(error))


def _said(verifier: Verifier, text: str) -> str:
    """Return a text as a completion of a training that begins, with a token per character, if this is asked for."""
    if not {*CARRIED}.intersection(verifier.inputs):
        return text
    return Completion.of(text, [*map(ord, text), 0], {"num_updates": 0, "max_updates": None})


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


def _count(report: Report, verifier: Verifier, trials: Sequence[Trial]) -> None:
    known = Counter(trial.case.family for trial in trials if trial.paid or trial.listed)
    report.declared = {family: known[family] for family in verifier.does_not_catch}
    attacks = [trial for trial in trials if not trial.case.honest]
    report.attacks, report.false_accepts = len(attacks), sum(trial.paid for trial in attacks)
    earned = [float(trial.verdicts[0].reward) for trial in attacks if trial.earned and not trial.paid]
    report.partial, report.most = len(earned), max(earned, default=0.0)
    honest = [trial.success for trial in trials if trial.case.honest]
    report.honest, report.false_rejects = len(honest), honest.count(False)
    report.median = statistics.median(trial.seconds for trial in trials if trial.seconds is not None)


def _of_verdicts(verifier: Verifier, trials: Sequence[Trial]) -> list[BrokenRule]:
    """Return the findings about verdicts: one per rule and family, or per fault."""
    found: dict[tuple[str, str], BrokenRule] = {}
    for rule, explanation, trial in sorted(_broken(verifier, trials), key=lambda each: list(RULES).index(each[0])):
        case, reward = trial.case, trial.verdicts[0].reward
        finding = BrokenRule(rule, explanation, case.family, shorten(case.problem.text), shorten(case.text), reward)
        words = explanation.split()  # status, exception, what it says, which may quote the text, line
        key = rule, words[1] + words[-1] if rule == "failed" else case.family
        found[key] = replace(found[key], times=found[key].times + 1) if key in found else finding
    return list(found.values())


def _broken(verifier: Verifier, trials: Sequence[Trial]) -> Iterator[tuple[str, str, Trial]]:
    """Yield each rule about verdicts that a trial breaks, the fault in words, and the trial."""
    for trial in trials:
        rewards = ", ".join(f"{verdict.reward:g} ({verdict.status})" for verdict in trial.verdicts)
        if trial.failure:
            yield "failed", f"{trial.failure.status}: {trial.failure.reason or 'no reason is given'}", trial
        elif trial.changed:
            yield "deterministic", f"alone, in a batch, in another order: {rewards}", trial
        elif trial.case.honest and not trial.success:
            yield "right", "a right answer is not a success", trial
        if trial.paid and trial.case.family not in verifier.does_not_catch:
            yield "attack", "a wrong completion is paid for", trial
        if trial.listed and trial.case.family not in verifier.does_not_catch:
            reward = trial.verdicts[0].reward
            said = f"earns {reward:g}, one without it {reward - trial.gain:g}"
            yield "partial", f"partial credit for saying everything: a list with the right answer in it {said}", trial
    timed = [(trial.seconds, number) for number, trial in enumerate(trials) if trial.seconds is not None]
    usual, (longest, number) = statistics.median(seconds for seconds, _ in timed), max(timed)
    if (usual > USUAL or longest > LONGEST) and not (verifier.execution.isolated or verifier.execution.slow):
        yield "speed", f"half take {1000 * usual:.1f} ms or more, this one {1000 * longest:.1f} ms", trials[number]


def _of_extracts(verifier: Verifier, cases: Sequence[Case]) -> Iterator[BrokenRule]:
    """Yield the finding about `extract`, which majority votes ask about any text, with the first that it fails on.

    The texts are those of one problem, since reading long ones takes as long as judging them.
    """
    for case in (each for each in cases if each.problem is cases[0].problem):
        try:
            extracted(verifier, case.problem, case.text)
        except Exception as error:  # whatever a plugin raises
            fault = f"extract: {describe(error)}"
            yield BrokenRule("failed", fault, case.family, shorten(case.problem.text), shorten(case.text))
            return


def _of_dialogues(verifier: Verifier, shown: Iterable[tuple[Problem, Sequence[str]]]) -> Iterator[BrokenRule]:
    """Yield the finding about the first demonstration of several turns that its dialogue does not end as a success.

    Those of one turn are judged as completions.
    """
    for problem, turns in shown:
        if len(turns) > 1:
            verdict, said = _played(verifier, problem, turns)
            rule = "failed" if verdict.status in VERIFIER_FAILED else "right"
            if said < len(turns) or not is_success(verifier, verdict):
                fault = f"after {said} of {len(turns)} right turns: {verdict.status}: {verdict.reason or 'no success'}"
                yield BrokenRule(rule, fault, "", shorten(problem.text), shorten(turns[said - 1]), verdict.reward)
                return


def _played(verifier: Verifier, problem: Problem, turns: Sequence[str]) -> tuple[Verdict, int]:
    """Return the verdict of an episode with these turns, and after how many it ended."""
    said = 1
    try:
        with _limit(HANGS), closing(begin(verifier, problem)) as dialogue:
            for said, turn in enumerate(turns, 1):
                if (verdict := reply_to(dialogue, turn).verdict) is not None:
                    return verdict, said
            verdict = reply_to(dialogue, None).verdict
            assert verdict is not None  # it ends the episode
            return verdict, said
    except (Exception, SystemExit, _TooLongError) as error:  # whatever a plugin raises
        return _failed(error, HANGS), said


def _of_problems(verifier: Verifier, sampled: Sequence[Problem]) -> Iterator[BrokenRule]:
    """Yield the findings about the problems that a verifier makes; of their texts only the first."""
    if sampled != _sampled(verifier):
        yield BrokenRule("problems", "two generators with one seed give different problems")
    if len({split_key_of(verifier, problem) for problem in sampled}) == 1:
        said = f"all {len(sampled)} problems have one split key, so the training or the test split is empty"
        yield BrokenRule("problems", f"{said}: override split_key", problem=shorten(sampled[0].text))
    for problem in sampled:
        texts = last_of(problem.prompt), verifier.demonstration(problem)
        limits = ("prompt", verifier.prompt_length), ("demonstration", verifier.answer_length)
        for text, (what, longest) in zip(texts, limits, strict=True):
            outside = "".join(sign for sign in dict.fromkeys(text) if sign not in verifier.alphabet)
            if outside or (longest is not None and len(text) > longest):
                declared = f"characters outside the alphabet: {outside!r}" if outside else f"{longest} are declared"
                said = f"the {what} {shorten(text)} has {len(text)} characters; {declared}"
                yield BrokenRule("problems", said, problem=shorten(problem.text))
                return


def _sampled(verifier: Verifier) -> list[Problem]:
    """Return some problems of each level; empty if the verifier does not make problems."""
    try:
        return sample_each(verifier, [random.Random(seed) for seed in range(SAMPLED)])
    except NotImplementedError:
        return []


def _of_declarations(verifier: Verifier, trials: Sequence[Trial], own: bool) -> Iterator[BrokenRule]:
    """Yield the findings about `does_not_catch`; only the verifier's own problems have to show each hole."""
    known = dict.fromkeys([*ATTACKS, WRONG, *(trial.case.family for trial in trials if not trial.case.honest)])
    paid = {trial.case.family for trial in trials if trial.paid or trial.listed}
    for family in verifier.does_not_catch:
        if family not in known:
            yield BrokenRule("declared", f"does_not_catch names an unknown attack; known: {', '.join(known)}", family)
        elif own and family not in paid:
            yield BrokenRule("declared", "does_not_catch names it, yet none of it was paid for", family)
