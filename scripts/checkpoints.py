"""When the checkpoints of a run are written, and which are kept."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from stable_baselines3.common.callbacks import BaseCallback

from agents import Agent
from agents.checkpoint import read_facts
from agents.files import whole_folder

from . import run_folder
from .progress import say
from .run_log import log_place


class Saver(BaseCallback):
    """Writes checkpoints of a run, between two rollouts and whenever asked.

    Args:
        run: the run folder.
        agent: is saved.
        minutes: at most this long between two checkpoints.
        updates: save after every so many updates instead; None goes by the minutes.
        keep: how many checkpoints are kept, besides the best, at least 1.
    """

    def __init__(self, run: Path, agent: Agent, minutes: float, updates: int | None, keep: int) -> None:
        super().__init__()
        self.run, self.agent, self.minutes, self.updates, self.keep = run, agent, minutes, updates, keep
        self.state = dict(agent.extra_state)  # of the run; kept in the checkpoints
        self.seconds: Callable[[], float] = lambda: self.state.get("seconds", 0.0)  # of training so far
        self._last = time.monotonic()

    def save(self) -> None:
        """Write a checkpoint of this moment; the one before it is kept among the earlier ones."""
        newest = whole_folder(self.run / run_folder.CHECKPOINT)
        self._write(self.run / run_folder.CHECKPOINT, self._name_of(newest) if self.keep > 1 else None)
        for path in run_folder.earlier(self.run)[self.keep - 1 :]:
            shutil.rmtree(path, ignore_errors=True)
        self._last = time.monotonic()

    def save_best(self) -> None:
        """Write the checkpoint of the best evaluation so far."""
        self._write(self.run / run_folder.BEST, None)

    def due(self) -> bool:
        """Tell whether it is time for a checkpoint."""
        if self.updates is not None:
            return self.agent.num_updates > 0 and self.agent.num_updates % self.updates == 0
        return time.monotonic() - self._last >= 60 * self.minutes

    def _on_rollout_start(self) -> None:
        if self.due():
            self.save()
            say(f"checkpoint after {self.agent.num_updates} updates", quiet=True)

    def _on_step(self) -> bool:
        return True

    def _write(self, folder: Path, previous: Path | None) -> None:
        self.state["seconds"] = self.seconds()
        try:
            self.state["log"] = log_place(self.agent.logger)
        except OSError:  # the run folder has gone, and with it the log; what was learned can still be saved
            self.state["log"] = None
        self.agent.extra_state = self.state
        self.agent.save(folder, previous)

    def _name_of(self, checkpoint: Path) -> Path | None:
        """Return the name under which a checkpoint is kept; None for one that is not worth it."""
        try:
            number = read_facts(checkpoint)["num_updates"]
        except (OSError, ValueError, KeyError):  # missing or damaged
            return None
        return self.run / f"{run_folder.CHECKPOINT}-{number:06d}"
