"""The rules of lint; the docstring of each function is the rule."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.reduction import ForkingPickler

from ..base import VERIFIER_FAILED, Problem
from ..conversation import last_of
from ..isolation.workers.pool import WorkerPool
from .attacks import FAMILIES
from .cases import MONOTONIC, PARAPHRASE, REFERENCE, shorten
from .trials import HANGS, Examined, Outcome, fault

SLOW = 0.005  # seconds
SAMPLED = 50  # problems
SEVERAL = "several kinds"  # instead of a family
Broken = Iterator[tuple[int, str]]  # the number of a case, and what is wrong with it


@dataclass(frozen=True)
class Finding:
    """A rule that a verifier broke, and the first completion of a kind with which it did."""

    rule: str
    explanation: str
    family: str = ""  # of the completions, "several kinds" for one fault with more; empty if about none
    problem: str = ""  # shortened
    completion: str = ""  # shortened
    reward: float | None = None
    times: int = 1  # how many completions of this kind


# Rules about verdicts.


def total(examined: Examined) -> Broken:
    """Every text gets a Verdict with finite numbers, and no exception."""
    for number, outcome in examined.trials.first.items():
        if outcome.fault:
            yield number, outcome.fault


def failed(examined: Examined) -> Broken:
    """No verdict has the status timeout or error; these are for faults, not for bad answers."""
    for number, outcome in examined.trials.first.items():
        if outcome.status in VERIFIER_FAILED:
            yield number, f"the verdict's status is {outcome.status}: {outcome.reason or 'no reason is given'}"


def reward_range(examined: Examined) -> Broken:
    """Rewards are within the declared range."""
    low, high = examined.verifier.reward_range
    for number, outcome in examined.trials.first.items():
        if outcome.reward is not None and not low <= outcome.reward <= high:
            yield number, f"outside the declared range {low:g} to {high:g}"


def deterministic(examined: Examined) -> Broken:
    """The same completion gets the same verdict again, in any order."""
    for number, outcome in examined.trials.again.items():
        if outcome != examined.outcome(number):
            yield number, f"judged a second time: {_said(outcome)}"


def batch(examined: Examined) -> Broken:
    """A completion gets the same verdict in a batch as alone, in any order."""
    if any(True for _ in deterministic(examined)):
        return  # then a difference says nothing about batches
    for outcomes in examined.trials.others:
        for number, outcome in outcomes.items():
            if outcome != examined.outcome(number):
                yield number, f"alone and in a batch it differs: {_said(examined.outcome(number))}, {_said(outcome)}"


def reference(examined: Examined) -> Broken:
    """The reference answer (the demonstration) is a success."""
    return _rejected(examined, REFERENCE)


def paraphrase(examined: Examined) -> Broken:
    """The verifier's paraphrases of right answers are successes."""
    return _rejected(examined, PARAPHRASE)


def attack(examined: Examined) -> Broken:
    """No wrong completion is a success; without partial credit, none earns anything; an empty one never does.

    Nothing means 0, or the lowest reward if that is above 0. A verifier gives partial credit if plain wrong answers,
    or right ones, earn a part of the reward.
    """
    for number in examined.paid:
        if examined.cases[number].family not in examined.verifier.does_not_catch:
            yield number, "a wrong completion is paid for"


def monotonic(examined: Examined) -> Broken:
    """A wrong answer added before or after a completion never raises its reward."""
    for number in examined.raised:
        if MONOTONIC not in examined.verifier.does_not_catch:
            base = examined.cases[number].base or 0
            yield number, f"more than the {examined.reward(base):g} of {shorten(examined.cases[base].text, 30)} alone"


VERDICT_RULES: dict[str, Callable[[Examined], Broken]] = {
    check.__name__.removeprefix("reward_"): check
    for check in (total, failed, reward_range, deterministic, batch, reference, paraphrase, attack, monotonic)
}


def verdict_findings(examined: Examined) -> list[Finding]:
    """Return the findings of the rules about verdicts: one per rule and family, or per fault."""
    findings: list[Finding] = []
    for rule, check in VERDICT_RULES.items():
        found: dict[str, Finding] = {}
        for number, explanation in check(examined):
            finding = _finding(examined, rule, number, explanation)
            key = explanation if check in (total, failed) else finding.family  # one fault with several families is one
            first = found.get(key)
            if first is not None:
                family = first.family if first.family == finding.family else SEVERAL
                finding = replace(first, family=family, times=first.times + 1)
            found[key] = finding
        findings += found.values()
    return findings


# Other rules.


def reproducible(examined: Examined) -> Iterator[Finding]:
    """The same seed gives the same problem again."""
    for first, again in zip(_sampled(examined), _sampled(examined), strict=True):
        if first != again:
            pair = f"{shorten(first.text, 30)} and {shorten(again.text, 30)}"
            yield Finding("reproducible", f"two generators with one seed give different problems: {pair}")
            return


def declarations(examined: Examined) -> Iterator[Finding]:
    """Sampled prompts and their demonstrations keep to the declared alphabet and lengths."""
    verifier = examined.verifier
    for problem in _sampled(examined):
        for what, text, longest in (
            ("prompt", last_of(problem.prompt), verifier.prompt_length),
            ("demonstration", verifier.demonstration(problem), verifier.answer_length),
        ):
            outside = "".join(dict.fromkeys(sign for sign in text if sign not in verifier.alphabet))
            reason = f"{outside!r}, outside the alphabet" if outside else ""
            if longest is not None and len(text) > longest:
                reason = f"{len(text)} characters, and {longest} are declared"
            if reason:
                said = f"the {what} {shorten(text)} has {reason}"
                yield Finding("declarations", said, problem=shorten(problem.text))
                return


def _sampled(examined: Examined) -> list[Problem]:
    """Return some problems of each level; empty if the verifier does not make problems."""
    try:
        return [
            examined.verifier.sample_at(random.Random(seed), 1 + seed % examined.verifier.levels)
            for seed in range(SAMPLED)
        ]
    except NotImplementedError:
        return []


def picklable(examined: Examined) -> Iterator[Finding]:
    """The verifier and its problems can be sent to a worker process."""
    try:
        WorkerPool(examined.verifier, workers=1)  # starts no process yet
    except ValueError as error:
        yield Finding("picklable", str(error))
    try:
        ForkingPickler.dumps(list(examined.problems))
    except Exception as error:
        yield Finding("picklable", f"its problems cannot be pickled: {fault(error)}")


def hang(examined: Examined) -> Iterator[Finding]:
    """No verdict takes ten seconds; if one does, lint stops."""
    if examined.trials.hung is not None:
        yield _finding(examined, "hang", examined.trials.hung, f"no verdict after {HANGS:g} seconds")


def batch_size(examined: Examined) -> Iterator[Finding]:
    """A batch returns as many verdicts as completions, and does not raise."""
    if examined.trials.batch_fault:
        yield Finding("batch", f"verify_batch: {examined.trials.batch_fault}")


def declared(examined: Examined) -> Iterator[Finding]:
    """Every family in does_not_catch exists, and is really paid for."""
    happened = {examined.cases[number].family for number in (*examined.paid, *examined.raised)}
    known = dict.fromkeys([*FAMILIES, MONOTONIC, *(case.family for case in examined.cases)])
    for family in examined.verifier.does_not_catch:
        if family not in known:
            yield Finding("declared", f"does_not_catch names an unknown family; known: {', '.join(known)}", family)
        elif examined.own and family not in happened:
            yield Finding("declared", "does_not_catch names it, yet none of it was paid for", family)


def speed(examined: Examined) -> Iterator[Finding]:
    """99 of 100 verdicts take at most 5 ms, unless the verifier declares that it is slow or isolated."""
    by_time = sorted(examined.trials.seconds, key=lambda number: examined.trials.seconds[number])
    slow = [number for number in by_time if examined.trials.seconds[number] > SLOW]
    if len(slow) > 0.01 * len(by_time) and not (examined.verifier.isolated or examined.verifier.slow):
        seconds = examined.trials.seconds[by_time[-1]]
        yield _finding(examined, "speed", by_time[-1], f"took {1000 * seconds:.1f} ms", times=len(slow))


RULES: dict[str, str] = {
    **{name: (check.__doc__ or "").split("\n\n")[0] for name, check in VERDICT_RULES.items()},
    **{check.__name__: check.__doc__ or "" for check in (reproducible, declarations, picklable, hang, declared, speed)},
    "problems": "Problems, demonstrations and paraphrases are made without an error.",
}


def _rejected(examined: Examined, family: str) -> Broken:
    for number, outcome in examined.trials.first.items():
        reached = not outcome.fault and outcome.status not in VERIFIER_FAILED
        if examined.cases[number].family == family and reached and not outcome.success:
            yield number, f"a right answer is not a success: {_said(outcome)}"


def _said(outcome: Outcome) -> str:
    reward = "no reward" if outcome.reward is None else f"reward {outcome.reward:g}"
    return outcome.fault or (reward if outcome.status == "ok" else f"{reward}, status {outcome.status}")


def _finding(examined: Examined, rule: str, number: int, explanation: str, times: int = 1) -> Finding:
    case = examined.cases[number]
    outcome = examined.trials.first.get(number, Outcome())
    return Finding(
        rule, explanation, case.family, shorten(case.problem.text), shorten(case.text), outcome.reward, times
    )
