"""The doctor during `rlenv train`: each finding is printed as soon as it appears, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..process.progress import say
from ..run.folder import RunFolder
from .history import History
from .rules import findings_of

GROWTH = 1.2  # of a run between two looks: few looks at a long log


class LiveDoctor:
    """Prints a line for each finding that the log so far shows.

    Args:
        run_dir: the run folder; its progress.csv is read, so that `rlenv doctor` finds the same.
        config: the options of the run, with the steps or episodes that it ends after.
    """

    def __init__(self, run_dir: Path, config: dict[str, Any]) -> None:
        self.run_dir, self.config = run_dir, config
        self.reported: set[str] = set()
        self.next_look = 0.0

    def look(self, result: dict[str, Any] | None = None) -> None:
        """Print the new findings; `result` is the result of a finished run."""
        for finding in findings_of(History(RunFolder(self.run_dir).log, self.config, result or {})):
            if finding.rule not in self.reported:
                self.reported.add(finding.rule)
                say(f"{finding.severity}: {finding.title} ({finding.evidence}). Try: {finding.fix} [{finding.rule}]")

    def look_if_due(self, updates: int) -> None:
        """Look if the run has so many updates that its log is clearly longer than at the last look."""
        if updates >= self.next_look:
            self.next_look = max(updates + 1, GROWTH * updates)
            self.look()
