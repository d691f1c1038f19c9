"""The rules that lint holds a verifier to; the docstring of each function is the rule."""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler

from ..base import Problem
from ..isolation import Isolated
from .attacks import FAMILIES
from .corpus import MONOTONIC, PARAPHRASE, REFERENCE, shorten
from .examined import Examined, Finding
from .trials import HANGS, Outcome, fault

SLOW = 0.005  # seconds
SAMPLED = 50  # problems
FAILED = ("timeout", "error")
SEVERAL = "several kinds"  # of completions, in place of a family
Broken = Iterator[tuple[int, str]]  # the number of a case, and what is wrong with it


# Rules about verdicts.


def total(examined: Examined) -> Broken:
    """Every text whatsoever gets a Verdict whose numbers are finite: no exception, nothing else."""
    for number, outcome in examined.trials.first.items():
        if outcome.fault:
            yield number, outcome.fault


def failed(examined: Examined) -> Broken:
    """No verdict has the status timeout or error: these are for faults, not for bad answers."""
    for number, outcome in examined.trials.first.items():
        if outcome.status in FAILED:
            yield number, f"the verdict's status is {outcome.status}: {outcome.reason or 'no reason is given'}"


def reward_range(examined: Examined) -> Broken:
    """Rewards lie within the range that the verifier declares."""
    low, high = examined.verifier.reward_range
    for number, outcome in examined.trials.first.items():
        if outcome.reward is not None and not low <= outcome.reward <= high:
            yield number, f"outside the declared range {low:g} to {high:g}"


def deterministic(examined: Examined) -> Broken:
    """The same completion gets the same verdict again, in whatever order completions come."""
    for number, outcome in examined.trials.again.items():
        if outcome != examined.outcome(number):
            yield number, f"judged a second time: {_said(outcome)}"


def batch(examined: Examined) -> Broken:
    """A batch is judged as its parts are, in whatever order they stand."""
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
    """Right answers in other words, as the verifier names them, are successes."""
    return _rejected(examined, PARAPHRASE)


def attack(examined: Examined) -> Broken:
    """No wrong completion is a success or, where rewards are all or nothing, earns anything; an empty one never does.

    Nothing is 0, or the least reward where that is more. Partial credit is no finding where plain wrong answers, or
    right ones, earn some, too.
    """
    for number in examined.paid:
        if not examined.declares(number):
            yield number, "a wrong completion is paid for"


def monotonic(examined: Examined) -> Broken:
    """A wrong answer added before or after a completion never raises its reward."""
    for number in examined.raised:
        if not examined.declares(number):
            base = examined.cases[number].base or 0
            yield number, f"more than the {examined.reward(base):g} of {shorten(examined.cases[base].text, 30)} alone"


VERDICT_RULES: dict[str, Callable[[Examined], Broken]] = {
    "total": total,
    "failed": failed,
    "range": reward_range,
    "deterministic": deterministic,
    "batch": batch,
    "reference": reference,
    "paraphrase": paraphrase,
    "attack": attack,
    "monotonic": monotonic,
}


def verdict_findings(examined: Examined) -> list[Finding]:
    """Return what breaks the rules about verdicts: one finding for each rule and family, or for each fault."""
    findings: list[Finding] = []
    for rule, check in VERDICT_RULES.items():
        by_family: dict[str, list[tuple[int, str]]] = {}
        for number, explanation in check(examined):
            by_family.setdefault(examined.cases[number].family, []).append((number, explanation))
        of_rule = [_finding(examined, rule, *found[0], times=len(found)) for found in by_family.values()]
        findings += _joined(of_rule) if check in (total, failed) else of_rule
    return findings


def _joined(findings: list[Finding]) -> list[Finding]:
    """Return the findings with those of one explanation joined: the same fault with several kinds of completions."""
    joined: dict[str, Finding] = {}
    for finding in findings:
        first = joined.setdefault(finding.explanation, finding)
        if first is not finding:
            joined[finding.explanation] = replace(first, family=SEVERAL, times=first.times + finding.times)
    return list(joined.values())


# Rules about the rest.


def reproducible(examined: Examined) -> Iterator[Finding]:
    """The same random generator gives the same problem again."""
    for first, again in zip(_sampled(examined), _sampled(examined), strict=True):
        if first != again:
            pair = f"{shorten(first.prompt, 30)} and {shorten(again.prompt, 30)}"
            yield Finding("reproducible", f"two generators with one seed give different problems: {pair}")
            return


def declarations(examined: Examined) -> Iterator[Finding]:
    """Prompts that the verifier samples, and their demonstrations, keep to its declared alphabet and lengths."""
    verifier = examined.verifier
    found: dict[str, Finding] = {}
    for problem in _sampled(examined):
        texts = {
            "prompt": (problem.prompt, verifier.prompt_length),
            "demonstration": (verifier.demonstration(problem), verifier.answer_length),
        }
        for what, (text, longest) in texts.items():
            outside = "".join(dict.fromkeys(sign for sign in text if sign not in verifier.alphabet))
            if outside:
                reason = f"the {what} {shorten(text)} has {outside!r}, outside the alphabet"
                found.setdefault(f"{what} alphabet", Finding("declarations", reason, problem=shorten(problem.prompt)))
            if longest is not None and len(text) > longest:
                reason = f"the {what} {shorten(text)} has {len(text)} characters, and {longest} are declared"
                found.setdefault(f"{what} length", Finding("declarations", reason, problem=shorten(problem.prompt)))
    return iter(found.values())


def _sampled(examined: Examined) -> list[Problem]:
    """Return some problems of each level, none where the verifier makes none of its own."""
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
        Isolated(examined.verifier, workers=1)  # starts no process before it is asked
    except ValueError as error:
        yield Finding("picklable", str(error))
    try:
        ForkingPickler.dumps(list(examined.problems))
    except Exception as error:
        yield Finding("picklable", f"its problems cannot be: {fault(error)}")


def hang(examined: Examined) -> Iterator[Finding]:
    """No verdict takes ten seconds; where one does, lint stops there."""
    if examined.trials.hung is not None:
        yield _finding(examined, "hang", examined.trials.hung, f"no verdict after {HANGS:g} seconds")


def batch_size(examined: Examined) -> Iterator[Finding]:
    """A batch has as many verdicts as completions, and makes no exception of its own."""
    if examined.trials.batch_fault:
        yield Finding("batch", f"verify_batch: {examined.trials.batch_fault}")


def declared(examined: Examined) -> Iterator[Finding]:
    """What the verifier says not to catch is a family of attacks, and is paid for indeed."""
    happened = {examined.cases[number].family for number in (*examined.paid, *examined.raised)}
    known = {*FAMILIES, MONOTONIC, *(case.family for case in examined.cases)}
    for family in examined.verifier.does_not_catch:
        if family not in known:
            close = difflib.get_close_matches(family, sorted(known), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            yield Finding("declared", f"does_not_catch names an unknown family{hint}", family)
        elif examined.own and family not in happened:
            yield Finding("declared", "does_not_catch names it, yet none of it was paid for", family)


def speed(examined: Examined) -> Iterator[Finding]:
    """99 of 100 verdicts take at most 5 ms, unless the verifier says that it is slow or runs in worker processes."""
    by_time = sorted(examined.trials.seconds, key=lambda number: examined.trials.seconds[number])
    slow = [number for number in by_time if examined.trials.seconds[number] > SLOW]
    if len(slow) > 0.01 * len(by_time) and not (examined.verifier.isolated or examined.verifier.slow):
        seconds = examined.trials.seconds[by_time[-1]]
        yield _finding(examined, "speed", by_time[-1], f"took {1000 * seconds:.1f} ms", times=len(slow))


RULES: dict[str, str] = {
    **{name: (check.__doc__ or "").split("\n\n")[0] for name, check in VERDICT_RULES.items()},
    **{check.__name__: check.__doc__ or "" for check in (reproducible, declarations, picklable, hang, declared, speed)},
    "problems": "The verifier's problems, demonstrations and paraphrases can be had without an error.",
}


def _rejected(examined: Examined, family: str) -> Broken:
    for number, outcome in examined.trials.first.items():
        reached = not outcome.fault and outcome.status not in FAILED
        if examined.cases[number].family == family and reached and not outcome.success:
            yield number, f"a right answer is no success: {_said(outcome)}"


def _said(outcome: Outcome) -> str:
    reward = "no reward" if outcome.reward is None else f"reward {outcome.reward:g}"
    return outcome.fault or (reward if outcome.status == "ok" else f"{reward}, status {outcome.status}")


def _finding(examined: Examined, rule: str, number: int, explanation: str, times: int = 1) -> Finding:
    case = examined.cases[number]
    outcome = examined.trials.first.get(number, Outcome())
    return Finding(
        rule, explanation, case.family, shorten(case.problem.prompt), shorten(case.text), outcome.reward, times
    )
