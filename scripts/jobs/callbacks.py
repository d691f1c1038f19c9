"""What `rlenv train` does between the steps of training: progress, other work, a signal, findings of the doctor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from ..process.progress import Interrupt, Rate, say
from ..reports.history import History
from ..reports.rules import findings_of
from ..run.folder import RunFolder

GROWTH = 1.2  # of a run between two looks of the doctor: few looks at a long log
SHOWN = {  # of the last update
    "success": ("rollout/success_rate", ".2f"),
    "reward": ("rollout/ep_rew_mean", ".2f"),
    "length": ("rollout/ep_len_mean", ".1f"),
}


class BetweenSteps(BaseCallback):
    """Updates the progress shown, does some work before every rollout, and stops training after a signal.

    Args:
        show: function of a note that updates the progress.
        interrupt: checked after every step.
        unit: of the steps of the environment, "tokens" or "steps"; so many per second are shown.
        work: before a rollout; training stops once it has returned False.
    """

    def __init__(self, show: Callable[[str], None], interrupt: Interrupt, unit: str, work: Callable[[], bool]) -> None:
        super().__init__()
        self.show, self.interrupt, self.unit, self.work = show, interrupt, unit, work
        self._ended = False  # whether any episode has
        self._goes_on = True

    def _on_training_start(self) -> None:
        self._rate = Rate(self.unit, self.model.num_timesteps)

    def _on_rollout_start(self) -> None:
        self._goes_on = self._goes_on and self.work()

    def _on_rollout_end(self) -> None:
        last, rate = self.model.last_metrics, self._rate(self.model.num_timesteps)
        counts = self.model.failure_watch.totals | {"skipped updates": self.model.policy_optimizer.total_skipped}
        failed = [f"{count} {name}" for name, count in counts.items() if count]
        figures = [f"{name} {last[column]:{form}}" for name, (column, form) in SHOWN.items() if column in last]
        self.show(", ".join([*figures, rate, *failed]))

    def _on_step(self) -> bool:
        if not self._ended:
            self._ended = bool(self.locals["dones"].any())
            self.show(self._rate(self.model.num_timesteps, ended=False))
        return self._goes_on and not self.interrupt.signal


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
