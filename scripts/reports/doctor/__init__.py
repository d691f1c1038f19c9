"""rlenv doctor: what the figures of a run say about it."""

from __future__ import annotations

from pathlib import Path

from .findings import Finding
from .history import read_run
from .rules import findings_of

__all__ = ["Finding", "examine_run"]


def examine_run(folder: Path, notes: bool = False) -> list[Finding]:
    """Return what the figures of a run show, the gravest first; empty for a healthy one.

    Args:
        folder: a run folder; the run may be over, stopped or still running.
        notes: whether to include what is normal, though it surprises.

    Raises:
        ValueError: if it is not a run folder, or a file in it is damaged.
    """
    return findings_of(read_run(folder), notes)
