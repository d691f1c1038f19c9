"""The slots of several agents, stepped together for `seed_stack.Stack`: who plays what, and the rollouts made of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ..core.rollout import Rollout
from ..policies import Policy
from ..policies.control.numpy_actor import NumpyActor
from .collector import Collector
from .record import Record, to_single
from .tape import Tape

_UNREAD = {
    "group",
    "is_success",
    "verdict_status",
    "verdict_future",
    "verifier_failed",
    "level",
    "prompt_arm",
}  # infos of an episode


class Loop:
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

    def actor(self, obs: np.ndarray) -> NumpyActor:
        """Return what acts for its agent, given the first observations of its slots.

        Raises:
            ValueError: if it does not act in numpy, although the policy says so; see `seed_stack.check`.
        """
        space, device = self.collector.envs.single_action_space, self.collector.device
        actor = self.policy.make_actor(obs, space, device, generator=self.generator)
        if not isinstance(actor, NumpyActor):
            raise ValueError(
                f"acts_in_numpy of {type(self.policy).__name__} is {self.policy.acts_in_numpy}, but its actor is a "
                f"{type(actor).__name__}; seeds are vectorized with a NumpyActor only"
            )
        return actor


class Table:
    """The slots of all agents, where every slot plays one episode of a rollout.

    A loop whose episodes are over gets its rollout at once, and begins the next one while others go on with theirs.

    Args:
        loops: those that wait for their first rollout.
    """

    def __init__(self, loops: Sequence[Loop]) -> None:
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
        self.actors: list[Any] = [None] * len(loops)  # of each loop
        self.actor: NumpyActor | None = None  # of all live loops; None if one has ended since it was made
        self.obs: Any = None

    def begin(self, loop: Loop) -> None:
        """Let a loop that has had its rollout begin the next one with the coming step, unless it has ended."""
        i = self.loops.index(loop)
        if loop.ended:
            self.live.remove(i)
            self.actor = None
        else:
            self.waiting.append(i)

    def step(self) -> list[Loop]:
        """Take a step in all slots; return the loops whose episodes are over."""
        started, live = time.perf_counter(), self.live
        if self.waiting:
            self._reset()
        if self.actor is None:
            self.actor = NumpyActor.joined([self.actors[i] for i in live])
        for_env, actions, log_probs = (self._spread(part) for part in self.actor.act(self.obs[live]))
        seen, rewards, terminated, truncated, infos = self.envs.step(for_env.reshape(-1, *for_env.shape[2:]))
        if found := _UNREAD & infos.keys():
            raise ValueError(
                f"seeds cannot be vectorized in an environment whose infos have {', '.join(sorted(found))}"
            )
        step = (self.obs, actions, log_probs, to_single(rewards).reshape(self.shape))
        self.tape.add(step, int(self.began[live].min()))
        self.lengths += ~(self.ended | self.cut)
        self.ended |= terminated.reshape(self.shape)
        self.cut |= truncated.reshape(self.shape)
        self.obs = self._by_loop(seen)
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
        starts[self.waiting] = True
        seeds: list[int | None] = [None] * starts.size
        for i in self.waiting:
            seed = self.loops[i].collector.take_seed()
            if seed is not None:
                seeds[i * slots : (i + 1) * slots] = range(seed, seed + slots)
        self.obs = self._by_loop(self.envs.reset(seed=seeds, options={"reset_mask": starts.reshape(-1)})[0])
        for i in self.waiting:
            self.actors[i] = self.loops[i].actor(self.obs[i])
            if self.actor is not None:
                self.actor.take(self.live.index(i), self.actors[i])
        self.ended[self.waiting] = self.cut[self.waiting] = False
        self.lengths[self.waiting], self.began[self.waiting] = 0, self.tape.count
        self.waiting = []

    def _by_loop(self, seen: np.ndarray) -> np.ndarray:
        """Return what all slots see [S · B, ...], as [S, B, ...]."""
        return to_single(seen).reshape(*self.shape, *seen.shape[1:])

    def _spread(self, values: np.ndarray) -> np.ndarray:
        """Return values of the live loops [S', ...] as those of all [S, ...]."""
        if len(self.live) == len(self.loops):
            return values
        whole = np.zeros((len(self.loops), *values.shape[1:]), dtype=values.dtype)
        whole[self.live] = values
        return whole

    def _rollout(self, i: int) -> Rollout:
        """Return the episodes of a loop."""
        lengths, cut = self.lengths[i].copy(), self.cut[i].copy()
        record = Record(len(lengths), len(lengths), torch.device("cpu"), groups_span_slots=True, slots_wait=True)
        record.start(lengths > 0, {})
        record.lengths, record.ends = lengths, {"terminated": self.ended[i].copy(), "truncated": cut}
        rows = self.tape.rows(self.began[i], int(lengths.max()))
        record.steps = {
            name: [part[rows, i].reshape(-1, *part.shape[3:])]
            for name, part in zip(record.steps, self.tape.parts, strict=True)
        }
        outlived = np.flatnonzero(cut & ~self.ended[i])
        if len(outlived):
            record.final_observations(outlived, self.obs[i], outlived)
        return self.loops[i].collector.finished(record)
