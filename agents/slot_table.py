"""The slots of several agents, stepped together for `stacked.Stack`: who plays what, and the rollouts made of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .collector import numpy_actions, to_single
from .policies.numpy_actor import NumpyActor
from .rollout import Rollout

_UNREAD = {"group", "is_success", "verdict_status", "verdict_future", "verifier_failed", "level"}  # infos of an episode


class Table:
    """The slots of all agents, where every slot plays one episode of a rollout.

    A loop whose episodes are over gets its rollout at once, and begins the next one while others go on with theirs.

    Args:
        loops: those that wait for their first rollout.
    """

    def __init__(self, loops: Sequence[Any]) -> None:
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

    def begin(self, loop: Any) -> None:
        """Let a loop that has had its rollout begin the next one with the coming step, unless it has ended."""
        i = self.loops.index(loop)
        if loop.ended:
            self.live.remove(i)
            self.actor = None
        else:
            self.waiting.append(i)

    def step(self) -> list[Any]:
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
        self.obs = to_single(seen, copy=False).reshape(*self.shape, *seen.shape[1:])
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
        self.obs = to_single(seen, copy=False).reshape(*self.shape, *seen.shape[1:])
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
