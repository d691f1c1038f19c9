"""The rules of lint."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.reduction import ForkingPickler

from ..base import VERIFIER_FAILED, Problem, Verifier
from ..conversation import last_of
from ..isolation.workers.pool import WorkerPool
from .attacks import FAMILIES
from .cases import MONOTONIC, PARAPHRASE, REFERENCE, shorten
from .trials import HANGS, Examined, Outcome, fault

SLOW = 0.005  # seconds
SAMPLED = 50  # problems
SEVERAL = "several kinds"  # instead of a family
RULES = {
    "total": "Every text gets a Verdict with finite numbers, and no exception.",
    "failed": "No verdict has the status timeout or error; these are for faults, not for bad answers.",
    "range": "Rewards are within the declared range.",
    "deterministic": "The same completion gets the same verdict again, in any order.",
    "batch": "A completion gets the same verdict in a batch as alone, in any order.",
    "reference": "The reference answer (the demonstration) is a success.",
    "paraphrase": "The verifier's paraphrases of right answers are successes.",
    # Nothing means 0, or the lowest reward if that is above 0. A verifier gives partial credit if plain wrong answers,
    # or right ones, earn a part of the reward.
    "attack": "No wrong completion is a success; without partial credit, none earns anything; an empty one never does.",
    "monotonic": "A wrong answer added before or after a completion never raises its reward.",
    "reproducible": "The same seed gives the same problem again.",
    "declarations": "Sampled prompts and their demonstrations keep to the declared alphabet and lengths.",
    "picklable": "The verifier and its problems can be sent to a worker process.",
    "hang": "No verdict takes ten seconds; if one does, lint stops.",
    "declared": "Every family in does_not_catch exists, and is really paid for.",
    "speed": "99 of 100 verdicts take at most 5 ms, unless the verifier declares that it is slow or isolated.",
    "problems": "Problems, demonstrations and paraphrases are made without an error.",
}


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


def verdict_findings(examined: Examined) -> list[Finding]:
    """Return the findings of the rules about verdicts: one per rule and family, or per fault."""
    found: dict[tuple[str, str], Finding] = {}
    for rule, number, explanation in sorted(_broken(examined), key=lambda each: list(RULES).index(each[0])):
        finding = _finding(examined, rule, number, explanation)
        key = rule, explanation if rule in ("total", "failed") else finding.family  # one fault is one finding
        if first := found.get(key):
            family = first.family if first.family == finding.family else SEVERAL
            finding = replace(first, family=family, times=first.times + 1)
        found[key] = finding
    return list(found.values())


def _broken(examined: Examined) -> Iterator[tuple[str, int, str]]:
    """Yield each rule about verdicts that a case breaks, with the number of the case, and what is wrong with it."""
    verifier, cases, trials = examined.verifier, examined.cases, examined.trials
    low, high = verifier.reward_range
    for number, outcome in trials.first.items():
        family = cases[number].family
        if outcome.fault:
            yield "total", number, outcome.fault
        elif outcome.status in VERIFIER_FAILED:
            reason = outcome.reason or "no reason is given"
            yield "failed", number, f"the verdict's status is {outcome.status}: {reason}"
        elif family in (REFERENCE, PARAPHRASE) and not outcome.success:
            yield family, number, f"a right answer is not a success: {_said(outcome)}"
        if outcome.reward is not None and not low <= outcome.reward <= high:
            yield "range", number, f"outside the declared range {low:g} to {high:g}"
    again = [(number, outcome) for number, outcome in trials.again.items() if outcome != examined.trials.first[number]]
    for number, outcome in again:
        yield "deterministic", number, f"judged a second time: {_said(outcome)}"
    for number, outcome in [each for outcomes in trials.others for each in outcomes.items() if not again]:
        if (first := examined.trials.first[number]) != outcome:
            yield "batch", number, f"alone and in a batch it differs: {_said(first)}, {_said(outcome)}"
    for number in examined.paid:
        if cases[number].family not in verifier.does_not_catch:
            yield "attack", number, "a wrong completion is paid for"
    for number in examined.raised if MONOTONIC not in verifier.does_not_catch else ():
        base = cases[number].base or 0
        yield "monotonic", number, f"more than the {examined.reward(base):g} of {shorten(cases[base].text, 30)} alone"


def problem_findings(examined: Examined) -> Iterator[Finding]:
    """Return the findings of the rules about the problems that a verifier makes: reproducible and declarations."""
    verifier, sampled = examined.verifier, _sampled(examined.verifier)
    for first, again in zip(sampled, _sampled(verifier), strict=True):
        if first != again:
            pair = f"{shorten(first.text, 30)} and {shorten(again.text, 30)}"
            yield Finding("reproducible", f"two generators with one seed give different problems: {pair}")
            break
    for problem in sampled:
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


def _sampled(verifier: Verifier) -> list[Problem]:
    """Return some problems of each level; empty if the verifier does not make problems."""
    try:
        return [verifier.sample_at(random.Random(seed), 1 + seed % verifier.levels) for seed in range(SAMPLED)]
    except NotImplementedError:
        return []


def other_findings(examined: Examined) -> Iterator[Finding]:
    """Return the findings of the rules picklable, hang, batch (whole ones), declared and speed."""
    verifier, trials = examined.verifier, examined.trials
    try:
        WorkerPool(verifier, workers=1)  # starts no process yet
    except ValueError as error:
        yield Finding("picklable", str(error))
    try:
        ForkingPickler.dumps(list(examined.problems))
    except Exception as error:
        yield Finding("picklable", f"its problems cannot be pickled: {fault(error)}")
    if trials.hung is not None:
        yield _finding(examined, "hang", trials.hung, f"no verdict after {HANGS:g} seconds")
        return
    if trials.batch_fault:
        yield Finding("batch", f"verify_batch: {trials.batch_fault}")
    happened = {examined.cases[number].family for number in (*examined.paid, *examined.raised)}
    known = dict.fromkeys([*FAMILIES, MONOTONIC, *(case.family for case in examined.cases)])
    for family in verifier.does_not_catch:
        if family not in known:
            yield Finding("declared", f"does_not_catch names an unknown family; known: {', '.join(known)}", family)
        elif examined.own and family not in happened:
            yield Finding("declared", "does_not_catch names it, yet none of it was paid for", family)
    by_time = sorted(trials.seconds, key=lambda number: trials.seconds[number])
    slow = sum(seconds > SLOW for seconds in trials.seconds.values())
    if slow > 0.01 * len(by_time) and not (verifier.isolated or verifier.slow):
        took = f"took {1000 * trials.seconds[by_time[-1]]:.1f} ms"
        yield _finding(examined, "speed", by_time[-1], took, times=slow)


def _said(outcome: Outcome) -> str:
    reward = "no reward" if outcome.reward is None else f"reward {outcome.reward:g}"
    return outcome.fault or (reward if outcome.status == "ok" else f"{reward}, status {outcome.status}")


def _finding(examined: Examined, rule: str, number: int, explanation: str, times: int = 1) -> Finding:
    case = examined.cases[number]
    outcome = examined.trials.first.get(number, Outcome())
    return Finding(
        rule, explanation, case.family, shorten(case.problem.text), shorten(case.text), outcome.reward, times
    )
