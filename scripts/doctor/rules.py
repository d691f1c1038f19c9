"""All rules of the doctor, in the order in which they are explained in docs/symptoms.md."""

from __future__ import annotations

from collections.abc import Callable

from . import reward_rules
from .findings import Finding
from .history import History

Rule = Callable[[History], Finding | None]
RULES: tuple[Rule, ...] = (reward_rules.every_episode_truncated,)
GRAVITY = ("error", "warning", "note")


def findings_of(run: History, rules: tuple[Rule, ...] = RULES) -> list[Finding]:
    """Return what the rules find in a run, the gravest first."""
    found = [finding for rule in rules if (finding := rule(run)) is not None]
    return sorted(found, key=lambda finding: GRAVITY.index(finding.severity))
