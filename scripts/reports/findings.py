"""What the doctor says about a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .history import History

Severity = Literal["note", "warning", "error"]


def near_start(run: History) -> str:
    """Return how to hold a policy near its start, by what the run does already."""
    weight = run.config.get("kl_coef")
    return f"raise --kl-coef {weight:g}" if weight else "hold the policy near its start (--kl-coef 0.05)"


@dataclass(frozen=True)
class Finding:
    """One thing that a run's figures show.

    Attributes:
        rule: its name, such as "reward-never-seen"; docs/symptoms.md explains each.
        severity: "note" for what is normal but surprises, "warning" for a run that learns less than it could, "error"
            for one whose result is worthless or that could not go on.
        title: the failure, in one line.
        evidence: the figures that show it.
        fix: which option to change.
        update: the update at which the figures were taken; None if they are of the whole run.
    """

    rule: str
    severity: Severity
    title: str
    evidence: str
    fix: str
    update: int | None
