"""Agents that differ in their seeds, trained in one process: they act in one batch and learn one by one.

A step of 1,024 poles takes three times as long as one of 16, so the slots of all agents are stepped together, and their
small MLPs act as one product with stacked weights. Each agent plays its own episodes with its own noise and makes its
own updates: its training is identical to a separate run.

Every training loop runs in a separate thread, unchanged, but only one thread works at a time: a loop that wants a
rollout hands over to the thread that steps the environment, and goes on once its episodes are over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch
from gymnasium.vector import VectorEnv

from ..core.rollout import Rollout
from ..policies import Policy
from .collector import Collector, OnStep
from .envs.waiting_envs import WaitingVectorEnv
from .slot_table import Loop, Table

_thread = threading.local()


def current() -> Stack | None:
    """Return the stack in which this thread's training loop runs, if any."""
    return getattr(_thread, "stack", None)


def check(env: VectorEnv, policy: Policy, episodes: int) -> None:
    """Refuse an agent that cannot be trained in a stack.

    Args:
        env: its environment.
        policy: its policy.
        episodes: per update.

    Raises:
        ValueError: naming what is in the way.
    """
    if not isinstance(env, WaitingVectorEnv):
        raise ValueError(f"seeds are vectorized for control environments given by their id, got {env!r:.80}")
    if not policy.acts_in_numpy:
        raise ValueError("seeds are vectorized for policies that act in numpy (see act_in_numpy in docs/speed.md)")
    if env.num_envs != episodes:
        raise ValueError(f"seeds are vectorized if num_envs is episodes_per_update, got {env.num_envs} and {episodes}")


class Stack:
    """Runs training loops side by side; see the module.

    Args:
        functions: training loops of one agent each, such as `agent.learn` with its arguments; all agents pass `check`
            and have the same settings but for the seed.
    """

    def __init__(self, functions: Sequence[Callable[[], Any]]) -> None:
        self.loops = [Loop(function) for function in functions]
        self._back = threading.Semaphore(0)
        self._away = self._closing = False

    def run(self) -> Generator[tuple[int, Any, BaseException | None], None, None]:
        """Run all loops; yield the number, the result and the error of each one as it ends.

        Close the generator to end the others early: they get a `SystemExit`.
        """
        told: set[int] = set()
        try:
            for loop in self.loops:
                loop.thread = threading.Thread(target=self._work, args=(loop,), daemon=True)
                loop.thread.start()
                self._give_turn(loop)
            table = Table([loop for loop in self.loops if not loop.ended])
            while True:
                for i, loop in enumerate(self.loops):
                    if loop.ended and i not in told:
                        told.add(i)
                        yield i, loop.result, loop.error
                if len(told) == len(self.loops):
                    return
                for loop in table.step():
                    self._give_turn(loop)
                    table.begin(loop)
        finally:
            self._closing = True
            if self._away:
                self._back.acquire()
            for loop in self.loops:
                if loop.thread.is_alive() and not loop.ended:
                    self._give_turn(loop)

    def collect(
        self,
        collector: Collector,
        policy: Policy,
        num_episodes: int,
        generator: torch.Generator,
        on_step: OnStep,
        progress: Any = None,
    ) -> Rollout | None:
        """Do what `Collector.collect` does, together with the other agents; called in the thread of a loop.

        `on_step` is called twice: for the first step and, at the end, for all others together.
        """
        started, loop = time.perf_counter(), _thread.loop
        if not on_step(num_episodes, {}):
            return None
        loop.collector, loop.policy, loop.generator, loop.share = collector, policy, generator, 0.0
        self._back.release()
        loop.turn.acquire()
        if self._closing:
            raise SystemExit
        collector.idle_seconds += time.perf_counter() - started - loop.share
        rollout: Rollout = loop.rollout
        return rollout if on_step(int(rollout.mask.sum()) - num_episodes, {}) else None

    def _give_turn(self, loop: Loop) -> None:
        self._away = True
        loop.turn.release()
        self._back.acquire()
        self._away = False

    def _work(self, loop: Loop) -> None:
        _thread.stack, _thread.loop = self, loop
        loop.turn.acquire()
        try:
            loop.result = None if self._closing else loop.function()
        except BaseException as error:
            loop.error = error
        finally:
            loop.ended = True
            self._back.release()
