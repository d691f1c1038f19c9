"""Agents that differ in their seeds, trained in one process: they act in one batch and learn one by one.

A step of 16 poles takes a third of the time of one of 1,024, so the slots of all agents are stepped together, and their
small MLPs act as one product with stacked weights. Each agent plays its own episodes with its own noise and makes its
own updates: it learns what it learns alone.

Every training loop runs in a thread of its own, unchanged, but only one thread works at a time: a loop that wants a
rollout hands over to the thread that steps the environment, and goes on once its episodes are over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import torch

from .collector import Collector, OnStep, numpy_actions
from .policies import Policy
from .policies.numpy_actor import NumpyActor
from .rollout import Rollout
from .waiting_envs import WaitingVectorEnv

_UNREAD = {"group", "is_success", "verdict_status", "verdict_future", "verifier_failed", "level"}  # infos of an episode
_thread = threading.local()


def current() -> Stack | None:
    """Return the stack in which this thread's training loop runs, if any."""
    return getattr(_thread, "stack", None)


def check(agent: Any) -> None:
    """Refuse an agent that cannot be trained in a stack.

    Raises:
        ValueError: naming what is in the way.
    """
    if not isinstance(agent.env, WaitingVectorEnv):
        raise ValueError(f"seeds are vectorized for control environments given by their id, got {agent.env!r:.80}")
    if agent.policy.numpy_actor() is None:
        raise ValueError("seeds are vectorized for policies that act in numpy (see act_in_numpy in docs/speed.md)")
    episodes, slots = agent.episodes_per_update, agent.env.num_envs
    if slots != episodes:
        raise ValueError(f"seeds are vectorized if num_envs is episodes_per_update, got {slots} and {episodes}")


class _Loop:
    """A training loop in its thread, and the rollout that it waits for."""

    collector: Collector
    policy: Policy
    generator: torch.Generator
    rollout: Rollout

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.turn = threading.Semaphore(0)
        self.thread = threading.Thread(daemon=True)
        self.ended = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.share = 0.0  # of the seconds in which its episodes were played


class Stack:
    """Runs training loops side by side; see the module.

    Args:
        functions: training loops of one agent each, such as `agent.learn` with its arguments; all agents pass `check`
            and have the same settings but for the seed.
    """

    def __init__(self, functions: Sequence[Callable[[], Any]]) -> None:
        self.loops = [_Loop(function) for function in functions]
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

    def _give_turn(self, loop: _Loop) -> None:
        self._away = True
        loop.turn.release()
        self._back.acquire()
        self._away = False

    def _work(self, loop: _Loop) -> None:
        _thread.stack, _thread.loop = self, loop
        loop.turn.acquire()
        try:
            loop.result = None if self._closing else loop.function()
        except BaseException as error:
            loop.error = error
        finally:
            loop.ended = True
            self._back.release()


class Table:
    """The slots of all agents, where every slot plays one episode of a rollout.

    A loop whose episodes are over gets its rollout at once, and begins the next one while others go on with theirs.

    Args:
        loops: those that wait for their first rollout.
    """

    def __init__(self, loops: Sequence[_Loop]) -> None:
        self.loops = list(loops)
        if not loops:
            return
        envs: list[Any] = [loop.collector.envs for loop in loops]
        every: list[Any] = [one for own in envs for one in own.envs]
        self.envs = type(envs[0])([lambda one=one: one for one in every])
        self.shape = (len(loops), envs[0].num_envs)
        self.ended, self.cut = np.zeros(self.shape, dtype=bool), np.zeros(self.shape, dtype=bool)
        self.lengths = np.zeros(self.shape, dtype=np.int64)
        self.began = np.zeros(len(loops), dtype=np.int64)  # the step with which a loop's rollout began
        self.tape = Tape()
        self.waiting = list(range(len(loops)))  # loops whose episodes have not begun
        self.live = list(self.waiting)
        self.actors: list[Any] = [None] * len(loops)
        self.actor: NumpyActor | None = None  # of all live loops
        self.renewed: list[int] = []  # loops whose weights have changed since
        self.obs: Any = None

    def begin(self, loop: _Loop) -> None:
        """Let a loop that has had its rollout begin the next one with the coming step, unless it has ended."""
        i = self.loops.index(loop)
        if loop.ended:
            self.live.remove(i)
            self.actor = None
        else:
            self.waiting.append(i)

    def step(self) -> list[_Loop]:
        """Take a step in all slots; return the loops whose episodes are over."""
        started, live = time.perf_counter(), self.live
        if self.waiting:
            self._reset()
        if self.actor is None:
            self.actor, self.renewed = NumpyActor.joined([self.actors[i] for i in live]), []
        for i in self.renewed:
            self.actor.take(live.index(i), self.actors[i])
        self.renewed = []
        generators = [self.loops[i].generator for i in live]
        actions, log_probs, _ = self.actor.act(self.obs[live], None, None, False, generators)
        actions, log_probs = self._spread(actions), self._spread(log_probs)
        flat = numpy_actions(actions.reshape(-1, *actions.shape[2:]), self.envs.single_action_space)
        seen, rewards, terminated, truncated, infos = self.envs.step(flat)
        if found := _UNREAD & infos.keys():
            raise ValueError(
                f"seeds cannot be vectorized in an environment whose infos have {', '.join(sorted(found))}"
            )
        self.tape.add((self.obs, actions, log_probs, rewards.reshape(self.shape).astype(np.float32)), self.began[live])
        runs = ~(self.ended | self.cut)
        self.lengths += runs
        self.ended |= terminated.reshape(self.shape)
        self.cut |= truncated.reshape(self.shape)
        self.obs = _single(seen).reshape(*self.shape, *seen.shape[1:])
        complete: np.ndarray = np.all(self.ended | self.cut, axis=1)
        over = [i for i in live if complete[i]] if complete.any() else []
        for i in over:
            self.loops[i].rollout = self._rollout(i)
        seconds = (time.perf_counter() - started) / len(live)
        for i in live:
            self.loops[i].share += seconds
        return [self.loops[i] for i in over]

    def _reset(self) -> None:
        """Begin the episodes of the loops that wait for them."""
        slots = self.shape[1]
        starts = np.zeros(self.shape, dtype=bool)
        seeds: list[int | None] = [None] * starts.size
        for i in self.waiting:
            starts[i], self.actors[i] = True, self.loops[i].policy.numpy_actor()
            seed = self.loops[i].collector.take_seed()
            if seed is not None:
                seeds[i * slots : (i + 1) * slots] = range(seed, seed + slots)
        seen, _ = self.envs.reset(seed=seeds, options={"reset_mask": starts.reshape(-1)})
        self.obs = _single(seen).reshape(*self.shape, *seen.shape[1:])
        self.ended[self.waiting] = self.cut[self.waiting] = False
        self.lengths[self.waiting], self.began[self.waiting] = 0, self.tape.count
        self.waiting, self.renewed = [], self.waiting

    def _spread(self, values: np.ndarray) -> np.ndarray:
        """Return values of the live loops [S', ...] as those of all [S, ...]."""
        if len(self.live) == len(self.loops):
            return values
        whole = np.zeros((len(self.loops), *values.shape[1:]), dtype=values.dtype)
        whole[self.live] = values
        return whole

    def _rollout(self, i: int) -> Rollout:
        """Return the episodes of a loop."""
        lengths = torch.from_numpy(self.lengths[i].copy())
        ended, cut = torch.from_numpy(self.ended[i].copy()), torch.from_numpy(self.cut[i].copy())
        observations, actions, log_probs, rewards = self.tape.read(self.began[i], int(lengths.max()), i)
        if not bool(rewards.isfinite().all()):
            raise ValueError("seeds cannot be vectorized in an environment that pays rewards that are not finite")
        last = torch.from_numpy(self.obs[i].copy())
        outlived = (cut & ~ended).reshape(-1, *[1] * (last.ndim - 1))
        return Rollout(
            observations=observations,
            actions=actions,
            log_probs=log_probs,
            rewards=rewards,
            mask=torch.arange(rewards.shape[1]) < lengths[:, None],
            terminated=ended,
            truncated=cut,
            groups=torch.zeros(len(lengths), dtype=torch.int64),
            valid=torch.ones(len(lengths), dtype=torch.bool),
            success=torch.full((len(lengths),), torch.nan),
            final_observations=last.where(outlived, 0) if bool(outlived.any()) else None,
        )


class Tape:
    """The last steps of all slots, in arrays that grow with the longest rollout.

    Attributes:
        count: of all steps so far.
    """

    def __init__(self) -> None:
        self.count, self.length = 0, 64
        self.parts: list[np.ndarray] = []

    def add(self, values: Sequence[np.ndarray], needed: np.ndarray) -> None:
        """Store a step, arrays [S, B, ...]; `needed` are the numbers of the first steps that are still read."""
        if not self.parts:
            self.parts = [np.zeros((self.length, *value.shape), dtype=value.dtype) for value in values]
        if self.count - int(needed.min()) >= self.length:
            kept = np.arange(self.count - self.length, self.count)
            for k, part in enumerate(self.parts):
                self.parts[k] = np.zeros((2 * self.length, *part.shape[1:]), dtype=part.dtype)
                self.parts[k][kept % (2 * self.length)] = part[kept % self.length]
            self.length *= 2
        for part, value in zip(self.parts, values, strict=True):
            part[self.count % self.length] = value
        self.count += 1

    def read(self, first: int, steps: int, i: int) -> list[torch.Tensor]:
        """Return so many steps of one loop [B, T, ...]."""
        rows = np.arange(first, first + steps) % self.length
        return [torch.from_numpy(np.ascontiguousarray(part[rows, i].swapaxes(0, 1))) for part in self.parts]


def _single(values: np.ndarray) -> np.ndarray:
    """Return double precision as single, as the collector does."""
    return values.astype(np.float32) if values.dtype == np.float64 else values
