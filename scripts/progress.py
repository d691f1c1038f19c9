"""Progress bars on stderr, and a clean end on Ctrl-C."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from stable_baselines3.common.callbacks import BaseCallback

console = Console(stderr=True)


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Any]:
    """Show a progress bar; yields a function of the amount done and a note."""
    columns = (
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=total, note="")
        yield lambda done, note="": progress.update(task, completed=done, note=note)


class Interrupt:
    """Turns the first Ctrl-C into a flag, so that work ends between two steps; the second one aborts."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> Interrupt:
        self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        console.print("Stopping after this step; press Ctrl-C again to abort.")


class ShowProgress(BaseCallback):
    """Updates a progress bar, and stops training after Ctrl-C.

    Args:
        show: function of a note that updates the bar.
        interrupt: checked after every step.
    """

    def __init__(self, show: Any, interrupt: Interrupt) -> None:
        super().__init__()
        self.show, self.interrupt = show, interrupt

    def _on_rollout_end(self) -> None:
        reward = self.model.last_metrics.get("rollout/ep_rew_mean")
        self.show("" if reward is None else f"reward {reward:.3f}")

    def _on_step(self) -> bool:
        return not self.interrupt.asked


class StopOnReward(BaseCallback):
    """Stops training when the mean reward of new evaluation episodes, minus two standard errors, reaches a goal.

    Evaluates before a rollout, so that the policy that passed is kept, at most every `every` rollouts, and only if the
    last rollout's mean was at least goal - |goal| / 2.

    Args:
        goal: the mean reward to reach.
        evaluate: returns the rewards of new episodes [n].
        every: rollouts between two evaluations.
    """

    def __init__(self, goal: float, evaluate: Any, every: int = 2) -> None:
        super().__init__()
        self.goal, self.evaluate, self.every = goal, evaluate, every
        self.rollouts = 0
        self.reached = False

    def _on_rollout_start(self) -> None:
        self.rollouts += 1
        latest = self.model.last_metrics.get("rollout/ep_rew_mean", -math.inf)
        if latest >= self.goal - abs(self.goal) / 2 and self.rollouts % self.every == 0:
            returns = self.evaluate()
            # The margin is needed because the first evaluation to pass is often lucky.
            self.reached = returns.mean() - 2 * returns.std(correction=0) / math.sqrt(len(returns)) >= self.goal

    def _on_step(self) -> bool:
        return not self.reached
