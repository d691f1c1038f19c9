"""When the checkpoints of a run are written, and which are kept."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

from rlenv.agents import Agent, processes
from rlenv.agents.files import whole_folder
from rlenv.agents.training.checkpoint import misfit, read_facts

from ..process.progress import say
from .folder import BEST, CHECKPOINT, LogPlace, RunFolder
from .log import flush


class RunState(TypedDict, total=False):
    """The state of a run in its checkpoints.

    Attributes:
        problems: the hash of those of supervised training.
        warm_start: figures of the warm start, once it has begun.
        imitation: the warm start itself, until it is over.
        initial: figures of the first evaluation.
        best: figures of the best evaluation so far; see `Job`.
        evaluated: updates after which the last evaluation of `--eval-every` was.
        curve: steps or episodes after which the last evaluation of the curve was.
        seconds: of training, without evaluations.
        log: how far the files of the log go.
    """

    problems: str
    warm_start: dict[str, Any]
    imitation: dict[str, Any]
    initial: dict[str, Any] | None
    best: dict[str, Any]
    evaluated: int
    curve: int
    seconds: int | float
    log: dict[str, Any] | None


class Saver:
    """Writes checkpoints of a run.

    Args:
        run: is saved in its folder.
        agent: is saved.
        minutes: at most this long between two checkpoints.
        updates: save after every so many updates instead; None goes by the minutes.
        keep: how many checkpoints are kept, besides the best, at least 1.

    Raises:
        ValueError: if the state of the run in the agent's checkpoint is not a `RunState`.
    """

    def __init__(self, run: RunFolder, agent: Agent, minutes: float, updates: int | None, keep: int) -> None:
        self.run, self.agent, self.minutes, self.updates, self.keep = run, agent, minutes, updates, keep
        self.state = dict(agent.extra_state)  # of the run; kept in the checkpoints
        log = self.state.get("log")
        if wrong := misfit(self.state, RunState) or ("" if log is None else misfit(log, LogPlace)):
            raise ValueError(f"the checkpoint is damaged: the run's {wrong}")
        self._last = time.monotonic()
        self._saved = self._content() if self.state else None
        self._training, self._counted = False, 0.0

    def save(self) -> None:
        """Write a checkpoint of this moment; the one before it, of fewer updates, is kept among the earlier ones."""
        newest = self.run.path / CHECKPOINT
        self._write(newest, self._name_of(whole_folder(newest)) if self.keep > 1 else None)
        self._saved = self._content()
        kept = 0
        for updates, path in self.run.earlier().items():
            kept += updates < self.agent.num_updates  # later ones are damaged: the run goes on from before them
            if updates >= self.agent.num_updates or kept >= self.keep:
                shutil.rmtree(path, ignore_errors=True)
        self._last = time.monotonic()

    def save_changes(self) -> None:
        """Write a checkpoint, unless the newest one is of this moment."""
        if self._saved != self._content():
            self.save()

    def save_best(self) -> None:
        """Write the checkpoint of the best evaluation so far."""
        self._write(self.run.path / BEST, None)

    def count_seconds(self, training: bool) -> None:
        """Add the time since the last call to the run's seconds, if that was training; evaluations do not count.

        Args:
            training: whether the time from now on is.
        """
        now = time.perf_counter() - self.agent.evaluation_seconds
        if self._training:
            self.state["seconds"] = self.state.get("seconds", 0.0) + now - self._counted
        self._training, self._counted = training, now

    def due(self) -> bool:
        """Tell whether it is time for a checkpoint."""
        if self.updates is not None:
            return self.agent.num_updates > 0 and self.agent.num_updates % self.updates == 0
        return processes.gather(time.monotonic() - self._last >= 60 * self.minutes)[0]  # by the main process's clock

    def save_if_due(self) -> None:
        """Write a checkpoint if it is time, unless the newest one is of this moment."""
        if self.due() and self._saved != self._content():
            self.save()
            say(f"checkpoint after {self.agent.num_updates} updates")

    def _write(self, folder: Path, previous: Path | None) -> None:
        self.count_seconds(self._training)
        with suppress(OSError):  # what TensorBoard cannot write is its own loss, and that of no other file
            flush(self.agent.logger)
        with suppress(OSError):  # the run folder may have gone; what was learned can still be saved
            self.state["log"] = self.run.log_place()
        self.agent.extra_state = self.state
        self.agent.save(folder, previous)

    def _content(self) -> tuple[int, dict[str, Any]]:
        """Return the mark by which two checkpoints after the warm start differ."""
        hidden = ("seconds", "log", "imitation")
        return self.agent.num_updates, {name: value for name, value in self.state.items() if name not in hidden}

    def _name_of(self, checkpoint: Path) -> Path | None:
        """Return the name under which a checkpoint is kept; None for one that is not worth it."""
        try:
            number = read_facts(checkpoint)["num_updates"]
        except (OSError, ValueError, KeyError):  # missing or damaged
            return None
        return self.run.path / f"{CHECKPOINT}-{number:06d}" if number < self.agent.num_updates else None
