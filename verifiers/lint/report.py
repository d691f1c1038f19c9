"""`lint` checks whether a verifier can be trusted, and returns a report."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..base import Problem, Verifier
from .cases import corpus
from .rules import Finding, other_findings, problem_findings, verdict_findings
from .trials import Examined, fault, try_all


@dataclass
class Report:
    """What lint found: the broken rules, and counts."""

    verifier: str
    findings: list[Finding] = field(default_factory=list)
    problems: int = 0
    without_demonstration: int = 0  # problems without a right answer to try
    attacks: int = 0
    false_accepts: int = 0  # attacks that were paid for, including declared ones
    declared: dict[str, int] = field(default_factory=dict)  # paid for, by family in `does_not_catch`
    honest: int = 0  # right completions
    false_rejects: int = 0  # right completions that were not a success
    partial: int = 0  # attacks that earned partial credit
    median: float = 0.0  # seconds per verdict
    p99: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether no rule was broken."""
        return not self.findings

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data for JSON."""
        return {**asdict(self), "passed": self.passed}


class NoProblemsError(ValueError):
    """The verifier cannot be tried without problems."""


def examples(verifier: Verifier, name: str) -> list[Problem]:
    """Return a verifier's example problems; NoProblemsError if it has none."""
    try:
        return verifier.examples()
    except NotImplementedError as error:
        raise NoProblemsError(f"verifier {name} makes no problems: pass --problems FILE") from error


def lint(verifier: Verifier, problems: Sequence[Problem] | None = None, name: str = "") -> Report:
    """Check a verifier against the rules in `rules.py`.

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
        chosen = list(examples(verifier, report.verifier) if problems is None else problems)
        examined = Examined(verifier, chosen, problems is None, corpus(verifier, chosen, problems is None))
        report.findings += problem_findings(examined)
    except NoProblemsError:
        raise
    except Exception as error:
        report.findings.append(Finding("problems", fault(error)))
        return report
    if not chosen:
        raise NoProblemsError(f"no problems to try verifier {report.verifier} with")
    report.problems = len(examined.problems)
    report.without_demonstration = sum(not verifier.demonstration(problem) for problem in examined.problems)
    examined = replace(examined, trials=try_all(verifier, examined.cases))
    if examined.trials.hung is None:
        _count(report, examined)
        report.findings += verdict_findings(examined)
    report.findings += other_findings(examined)
    return report


def _count(report: Report, examined: Examined) -> None:
    paid, raised, cases = examined.paid, examined.raised, examined.cases
    report.attacks = sum(case.attack for case in cases)
    report.honest = sum(case.honest for case in cases)
    report.false_accepts = len(paid)
    report.false_rejects = sum(case.honest and not examined.trials.first[n].success for n, case in enumerate(cases))
    earned = [number for number, case in enumerate(cases) if case.attack and examined.earned(number)]
    report.partial = len(set(earned) - set(paid))
    report.declared = {
        family: sum(cases[number].family == family for number in (*paid, *raised))
        for family in examined.verifier.does_not_catch
    }
    times = sorted(examined.trials.seconds.values())
    report.median, report.p99 = statistics.median(times), times[int(0.99 * (len(times) - 1))]
