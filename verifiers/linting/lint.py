"""Whether a verifier can be trusted: it pays for right answers, for nothing else, always the same and fast."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..base import Problem, Verifier
from .corpus import corpus
from .examined import Examined, Finding
from .rules import batch_size, declarations, declared, hang, picklable, reproducible, speed
from .rules import verdict_findings as about_verdicts
from .trials import fault, try_all


@dataclass
class Report:
    """What lint found.

    Args:
        verifier: its name.
        findings: the broken rules; none where it passes.
        problems: how many problems it was tried with.
        without_demonstration: those of them that have no reference answer, which no rule about right answers holds to.
        attacks: how many wrong completions were judged.
        false_accepts: how many of them were paid for, declared ones included.
        declared: by family that the verifier says not to catch: how many of it were paid for.
        honest: how many right completions were judged.
        false_rejects: how many of them were no success.
        partial: how many attacks earned some of a success, where a verifier gives partial credit.
        median: seconds of a verdict.
        p99: seconds that 99 of 100 verdicts keep.
    """

    verifier: str
    findings: list[Finding] = field(default_factory=list)
    problems: int = 0
    without_demonstration: int = 0
    attacks: int = 0
    false_accepts: int = 0
    declared: dict[str, int] = field(default_factory=dict)
    honest: int = 0
    false_rejects: int = 0
    partial: int = 0
    median: float = 0.0
    p99: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether no rule was broken."""
        return not self.findings

    def as_dict(self) -> dict[str, Any]:
        """Return everything in a form that JSON knows."""
        return {**asdict(self), "passed": self.passed}


class NoProblemsError(ValueError):
    """There is nothing to try a verifier with."""


def examples(verifier: Verifier, name: str) -> list[Problem]:
    """Return the problems that a verifier brings.

    Raises:
        NoProblemsError: if it brings none.
    """
    try:
        return verifier.examples()
    except NotImplementedError as error:
        raise NoProblemsError(f"verifier {name} has no problems of its own: pass --problems FILE") from error


def lint(verifier: Verifier, problems: Sequence[Problem] | None = None, name: str = "") -> Report:
    """Hold a verifier to the rules in `rules.py`.

    Args:
        verifier: the verifier.
        problems: what to try it with; None for the examples that it brings.
        name: what to call it; the name of its class by default.

    Returns:
        The report; `report.passed` tells whether every rule was kept.

    Raises:
        NoProblemsError: a ValueError, if there are no problems to try it with.
    """
    report = Report(name or type(verifier).__name__)
    try:
        chosen = list(examples(verifier, report.verifier) if problems is None else problems)
        examined = Examined(verifier, chosen, problems is None, corpus(verifier, chosen, problems is None))
        report.findings += [*reproducible(examined), *declarations(examined)]
    except NoProblemsError:
        raise
    except Exception as error:
        report.findings.append(Finding("problems", fault(error)))
        return report
    if not chosen:
        raise NoProblemsError(f"there are no problems to try verifier {report.verifier} with")
    report.findings += picklable(examined)
    report.problems = len(examined.problems)
    report.without_demonstration = sum(not verifier.demonstration(problem) for problem in examined.problems)
    examined = replace(examined, trials=try_all(verifier, examined.cases))
    report.findings += hang(examined)
    if examined.trials.hung is None:
        _count(report, examined)
        rules = (about_verdicts, batch_size, declared, speed)
        report.findings += [finding for rule in rules for finding in rule(examined)]
    return report


def _count(report: Report, examined: Examined) -> None:
    paid, raised, cases = examined.paid, examined.raised, examined.cases
    report.attacks = sum(case.attack for case in cases)
    report.honest = sum(case.honest for case in cases)
    report.false_accepts = len(paid)
    report.false_rejects = sum(case.honest and not examined.outcome(n).success for n, case in enumerate(cases))
    earned = [number for number, case in enumerate(cases) if case.attack and examined.earned(number)]
    report.partial = len(set(earned) - set(paid))
    report.declared = {
        family: sum(cases[number].family == family for number in (*paid, *raised))
        for family in examined.verifier.does_not_catch
    }
    times = sorted(examined.trials.seconds.values())
    report.median, report.p99 = statistics.median(times), times[int(0.99 * (len(times) - 1))]
