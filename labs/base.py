"""What a lab returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Check:
    """One thing that the claim says, in figures.

    Args:
        text: what was expected, with the figure that was measured.
        held: whether it came out.
    """

    text: str
    held: bool


@dataclass(frozen=True)
class Finding:
    """What a lab claimed and what it measured.

    Args:
        claim: one or two sentences.
        checks: what the claim says, one by one; it held where all of them did.
        rows: the measurements, one row each, with equal keys; written as CSV.
        figures: the main figures, JSON-able.
        draw: draws them on a matplotlib Figure.
    """

    claim: str
    checks: list[Check]
    rows: list[dict[str, Any]]
    figures: dict[str, Any] = field(default_factory=dict)
    draw: Callable[[Any], None] | None = None

    @property
    def held(self) -> bool:
        """Whether every check held."""
        return all(check.held for check in self.checks)
