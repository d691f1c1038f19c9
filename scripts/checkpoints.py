"""When the checkpoints of a run are written, and which are kept."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from agents import Agent
from agents.checkpoint import read_facts
from agents.files import whole_folder

from . import run_folder
from .progress import say
from .run_log import log_place

_NUMBER = (int, float)
_KINDS: dict[str, tuple[type, ...]] = {  # of what a run keeps in its checkpoints
    "warm_start": (dict,),
    "imitation": (dict,),
    "initial": (dict, type(None)),
    "best": (dict,),
    "evaluated": (int,),
    "seconds": _NUMBER,
    "log": (dict, type(None)),
}


def checked_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a run that a checkpoint keeps.

    Raises:
        ValueError: if it is not of the kind that `Saver` and `Job` write.
    """
    numbers: list[Any] = [state.get("seconds", 0.0), state.get("evaluated", 0)]
    for name, value in state.items():
        if not isinstance(value, _KINDS.get(name, ())):
            raise ValueError(f"the checkpoint is damaged: the run's {name} is {value!r:.80}")
    if "best" in state:
        numbers.append(state["best"].get("mean_reward"))
    numbers.append(state.get("warm_start", {}).get("seconds", 0.0))
    if state.get("log") is not None:
        events = state["log"].get("events")
        sizes = [state["log"].get("rows"), *(events.values() if isinstance(events, dict) else [None])]
        numbers += [size if isinstance(size, int) and size >= 0 else None for size in sizes]
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, _NUMBER) or not math.isfinite(number):
            raise ValueError(f"the checkpoint is damaged: the run's state has {number!r:.80} where a number belongs")
    return dict(state)


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
        self.state = checked_state(agent.extra_state)  # of the run; kept in the checkpoints
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
