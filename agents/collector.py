"""Act, step, store, restart finished slots: one loop for text and control.

A rollout is a set of N episodes fixed before the first step, all of them finished. Episodes are numbered as they
start and numbers from N on are ignored: taking whichever N finish first would favour short ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from .policies import Policy
from .rollout import Obs, Rollout, absent, map_many, map_obs

RESTART_SHARE = 1 / 8  # of all slots; reading prompts costs a pass of its own, so that they are read several at a time
OnStep = Callable[[int, dict[str, Any]], bool]


class Collector:
    """Collects rollouts from a vector environment, numpy or torch, in any of Gymnasium's autoreset modes.

    Args:
        envs: the environment.
        device: where the policy is.

    Attributes:
        failure: why the verifier failed when it last did; empty if it never did.
    """

    def __init__(self, envs: VectorEnv, device: torch.device) -> None:
        self.envs, self.device = envs, device
        self.mode: AutoresetMode = envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self.slots_wait = self.mode is AutoresetMode.DISABLED and bool(envs.metadata.get("finished_slots_may_step"))
        self.groups_span_slots = bool(envs.metadata.get("groups_span_slots", False))
        self.ends_are_in_infos = bool(envs.metadata.get("ends_are_in_infos", False))
        self.verdicts_in_infos = bool(envs.metadata.get("verdicts_in_infos", False))
        self._none = np.zeros(envs.num_envs, dtype=bool)
        self._seed: int | None = None
        self.failure = ""

    def seed(self, seed: int) -> None:
        """Seed the environment at the start of the next rollout."""
        self._seed = seed

    @torch.no_grad()
    def collect(
        self,
        policy: Policy,
        num_episodes: int,
        generator: torch.Generator | None = None,
        deterministic: bool = False,
        on_step: OnStep | None = None,
    ) -> Rollout | None:
        """Return `num_episodes` finished episodes.

        Args:
            policy: acts.
            num_episodes: N.
            generator: for sampling actions.
            deterministic: whether to take the likeliest action instead.
            on_step: called after every step of the vector environment with the number of slots that took it, those of
                surplus episodes included, and the local variables; returning False ends the collection.

        Returns:
            The rollout, or None if `on_step` ended it.

        Raises:
            ValueError: if an episode that should end with a verdict was cut off before it.
        """
        record = _Record(num_episodes, self.envs.num_envs, self.device, self.groups_span_slots, self.slots_wait)
        starts = np.arange(self.envs.num_envs) < (num_episodes if self.slots_wait else self.envs.num_envs)
        raw_obs, infos = self.envs.reset(seed=self._seed, options=None if starts.all() else {"reset_mask": starts})
        self._seed = None
        stores = not policy.obs_from_actions  # then observations are kept, and environments may reuse their buffers
        record.start(starts, infos)
        obs = self._to_device(raw_obs, copy=stores)
        state = policy.initial_state(self.envs.num_envs)
        if policy.obs_from_actions:
            record.first_observations(obs, starts)
        while record.unfinished:
            actions, log_probs, state = policy.act(
                obs, state, torch.from_numpy(starts), deterministic, generator, playing=record.playing
            )
            sent = self._to_env(policy.for_env(actions), raw_obs)
            raw_obs, rewards, terminated, truncated, infos = self.envs.step(sent)
            taken = record.add(obs if stores else None, actions, log_probs, self._to_device(rewards))
            ended, cut = self._ends(terminated, truncated, infos)
            dones = ended | cut
            if dones.any():
                self._check_judged(dones, _end_info(infos))
                cut_off = record.counting(cut & ~ended)
                if len(cut_off):
                    record.cut_off(cut_off, self._final_observations(raw_obs, infos, cut_off))
                record.finish(dones, ended, cut, _end_info(infos))
            if on_step is not None and not on_step(taken, {"dones": dones, "infos": infos, "rewards": rewards}):
                return None
            raw_obs, starts = self._restart(record, raw_obs, dones, infos)
            obs = self._to_device(raw_obs, copy=stores)
            if policy.obs_from_actions and starts.any():
                record.first_observations(obs, starts)
        if record.tickets:
            record.settle(self.envs.unwrapped.collect_verdicts())
        rollout = record.rollout()
        self.failure = record.failure or self.failure
        return rollout

    def _restart(self, record: _Record, obs: Any, dones: np.ndarray, infos: dict[str, Any]) -> tuple[Any, np.ndarray]:
        """Give finished slots their next episode; return observations and where they begin an episode."""
        if self.mode is AutoresetMode.SAME_STEP:
            starts = dones
        elif self.mode is AutoresetMode.NEXT_STEP:
            # The step after the end only brings the new episode's observation: nothing of it counts.
            starts = record.rest(dones)
        else:
            starts = record.to_restart(RESTART_SHARE) if self.slots_wait else dones
            if starts.any():
                obs, infos = self.envs.reset(options={"reset_mask": starts})
        if starts.any():
            record.start(starts, infos)
        return obs, starts

    def _final_observations(self, obs: Any, infos: dict[str, Any], slots: np.ndarray) -> Obs:
        """Return what these slots, which have just ended, are looking at [n, ...]."""
        if self.mode is AutoresetMode.SAME_STEP:  # the observation is already the next episode's
            rows = [map_obs(lambda x: torch.as_tensor(x)[None], infos["final_obs"][slot]) for slot in slots]
            return self._to_device(map_many(torch.cat, rows))
        return map_obs(lambda x: x[torch.as_tensor(slots, device=x.device)], self._to_device(obs))

    def _ends(self, terminated: Any, truncated: Any, infos: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Return which episodes ended and how; the device is asked only where the infos do not say that none did."""
        if self.ends_are_in_infos and "_completion" not in _end_info(infos):
            return self._none, self._none
        return _numpy(terminated), _numpy(truncated)

    def _check_judged(self, dones: np.ndarray, info: dict[str, Any]) -> None:
        judged = info.get("_verdict_status", info.get("_verdict_ticket", self._none))
        if self.verdicts_in_infos and (dones & ~judged).any():
            raise ValueError(
                "an episode ended without a verdict: a wrapper (TimeLimit?) cut it off; limit completions with "
                "max_new_tokens instead, or let the wrapper set info['verdict_status'] to 'ok' where it pays the reward"
            )

    def _to_device(self, obs: Any, copy: bool = True) -> Obs:
        """Return tensors where the policy is; double precision becomes single."""

        def convert(value: Any) -> torch.Tensor:
            tensor = torch.as_tensor(value)
            dtype = torch.float32 if tensor.dtype is torch.float64 else tensor.dtype
            return tensor.to(self.device, dtype, copy=copy)

        return map_obs(convert, obs)

    def _to_env(self, actions: torch.Tensor, obs: Any) -> Any:
        example = next(iter(obs.values())) if isinstance(obs, dict) else obs
        if isinstance(example, torch.Tensor):
            return actions
        return numpy_actions(actions, self.envs.single_action_space)


def numpy_actions(actions: torch.Tensor, space: gym.Space) -> np.ndarray:
    """Return a batch of actions as numpy environments take them: inside the bounds of a Box."""
    array = actions.cpu().numpy()
    return np.clip(array, space.low, space.high) if isinstance(space, gym.spaces.Box) else array


class _Record:
    """The bookkeeping of one rollout: which slot plays which episode, and what happened."""

    def __init__(
        self, num_episodes: int, num_slots: int, device: torch.device, groups_span_slots: bool, slots_wait: bool
    ) -> None:
        self.num_episodes, self.device = num_episodes, device
        self.groups_span_slots, self.slots_wait = groups_span_slots, slots_wait
        self.started = self.finished = 0
        self.episode = np.full(num_slots, -1)  # the number a slot plays, -1 for one that does not count
        self.step = np.zeros(num_slots, dtype=np.int64)
        self.resting = np.zeros(num_slots, dtype=bool)  # NEXT_STEP: the coming step only resets the slot
        self.places: list[tuple[np.ndarray, np.ndarray]] = []  # per step: episode and time [B]
        self.steps: list[tuple[Obs | None, torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self.first: list[tuple[np.ndarray, Obs]] = []
        self.last: list[tuple[np.ndarray, Obs]] = []
        self.ends = {name: np.zeros(num_episodes, dtype=bool) for name in ("terminated", "truncated")}
        self.valid = np.ones(num_episodes, dtype=bool)
        self.success = np.full(num_episodes, np.nan)
        self.extras: dict[str, np.ndarray] = {}
        self.failure = ""
        self.tickets: dict[int, int] = {}  # where verdicts come late: episode to ticket
        self.late_rewards: np.ndarray | None = None
        self.groups = np.zeros(num_episodes, dtype=np.int64)
        self._playing: torch.Tensor | None = None

    @property
    def unfinished(self) -> bool:
        return self.finished < self.num_episodes

    @property
    def playing(self) -> torch.Tensor:
        """Which slots take the coming step, bool [B], on the host: all that neither wait nor only bring a reset."""
        if self._playing is None:
            self._playing = torch.from_numpy(self.episode >= 0 if self.slots_wait else ~self.resting)
        return self._playing

    @property
    def remaining(self) -> int:
        return max(self.num_episodes - self.started, 0)

    def to_restart(self, share: float) -> np.ndarray:
        """Return which finished slots start an episode that counts, bool [B]: none until there is a share of them."""
        waiting = np.flatnonzero(self.episode < 0)
        starts = np.zeros(len(self.episode), dtype=bool)
        if len(waiting) >= share * len(self.episode) or len(waiting) == len(self.episode):
            starts[waiting[: self.remaining]] = True
        return starts

    def rest(self, dones: np.ndarray) -> np.ndarray:
        """Let slots that ended rest for a step, which only resets them; return those that rested, bool [B]."""
        rested, self.resting, self._playing = self.resting, dones, None
        return rested

    def start(self, starts: np.ndarray, infos: dict[str, Any]) -> None:
        slots = np.flatnonzero(starts)
        numbers = self.started + np.arange(len(slots))
        self.started += len(slots)
        self.episode[slots] = np.where(numbers < self.num_episodes, numbers, -1)
        self.step[slots] = 0
        self._playing = None
        if "group" in infos:
            counts = numbers < self.num_episodes
            group = np.asarray(infos["group"])[slots[counts]]
            # Where every slot counts its own groups, the slot tells equal numbers apart.
            own = group if self.groups_span_slots else group * len(self.episode) + slots[counts]
            self.groups[numbers[counts]] = own

    def first_observations(self, obs: Obs, starts: np.ndarray) -> None:
        slots = self.counting(starts)
        index = torch.as_tensor(slots, device=self.device)
        self.first.append((self.episode[slots], map_obs(lambda x: x[index], obs)))

    def counting(self, slots: np.ndarray) -> np.ndarray:
        """Return the numbers of those of the slots (bool [B]) that play an episode of this rollout."""
        return np.flatnonzero(slots & (self.episode >= 0))

    def cut_off(self, slots: np.ndarray, obs: Obs) -> None:
        """Keep what these slots see after the last step of their episodes."""
        self.last.append((self.episode[slots], obs))

    def add(self, obs: Obs | None, actions: torch.Tensor, log_probs: torch.Tensor, rewards: Any) -> int:
        """Store a step of every slot; return how many slots took it."""
        self.places.append((self.episode.copy(), self.step.copy()))
        self.steps.append((obs, actions, log_probs, rewards))
        self.step += self.episode >= 0
        return int(self.playing.sum())

    def finish(
        self, dones: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, info: dict[str, np.ndarray]
    ) -> None:
        """Close the episodes that ended with the step just added."""
        slots = self.counting(dones)
        numbers = self.episode[slots]
        self.ends["terminated"][numbers], self.ends["truncated"][numbers] = terminated[slots], truncated[slots]
        if "verdict_ticket" in info:
            self.tickets |= zip(numbers.tolist(), np.asarray(info["verdict_ticket"])[slots].tolist(), strict=True)
        else:
            self._note(numbers, slots, info)
        self.episode[slots] = -1
        self._playing = None
        self.finished += len(slots)

    def settle(self, outcomes: dict[str, Any]) -> None:
        """Take in the verdicts that came late; `outcomes` is in order of tickets."""
        numbers, tickets = np.array(list(self.tickets)), np.array(list(self.tickets.values()))
        verdict = columns_of([outcomes["verdict"][ticket] for ticket in tickets])
        told = {key: np.asarray(values)[tickets] for key, values in outcomes.items() if key != "verdict"}
        self._note(numbers, np.arange(len(numbers)), {**told, "verdict": verdict})
        self.late_rewards = np.zeros(self.num_episodes)
        self.late_rewards[numbers] = told["r"]

    def _note(self, numbers: np.ndarray, rows: np.ndarray, info: dict[str, Any]) -> None:
        """Keep what the infos say of these episodes, which stand in these rows of its columns."""
        if "verdict_status" in info:
            self.valid[numbers] = np.asarray(info["verdict_status"], dtype=object)[rows] == "ok"
        elif "verifier_failed" in info:
            self.valid[numbers] = ~np.asarray(info["verifier_failed"], dtype=bool)[rows]
        if "is_success" in info:
            self.success[numbers] = np.asarray(info["is_success"], dtype=float)[rows]
        if "level" in info:
            self._figure("level")[numbers] = np.asarray(info["level"], dtype=float)[rows]
        for name, values in info.get("verdict", {}).items():
            if not name.startswith("_"):
                having = np.asarray(info["verdict"].get(f"_{name}", np.ones(len(values), bool)), dtype=bool)[rows]
                self._figure(f"parts/{name}")[numbers[having]] = np.asarray(values, dtype=float)[rows[having]]
        if "verdict_status" in info and not self.valid[numbers].all():
            status = np.asarray(info["verdict_status"], dtype=object)[rows]
            for kind in dict.fromkeys(status[status != "ok"]):
                self._figure(kind)[numbers[status == kind]] = 1.0
            reasons = np.asarray(info.get("verdict_reason", info["verdict_status"]), dtype=object)[rows]
            failed = zip(status[status != "ok"], reasons[status != "ok"], strict=True)
            told = [f"{kind}: {reason}" for kind, reason in failed if reason]
            self.failure = told[-1] if told else self.failure

    def _figure(self, name: str) -> np.ndarray:
        return self.extras.setdefault(name, np.full(self.num_episodes, absent(name)))

    def rollout(self) -> Rollout:
        """Put every stored step into its place [N, T]."""
        places = torch.as_tensor(np.array(self.places).swapaxes(0, 1), device=self.device)  # [2, S, B]
        stored = places[0] >= 0  # [S, B]
        index = (places[0][stored], places[1][stored])
        shape = (self.num_episodes, int(index[1].max()) + 1)

        def place(values: Sequence[torch.Tensor]) -> torch.Tensor:
            stacked = torch.stack(tuple(values))[stored]
            out = torch.zeros(*shape, *stacked.shape[1:], dtype=stacked.dtype, device=self.device)
            out[index] = stacked
            return out

        observations, actions, log_probs, rewards = zip(*self.steps, strict=True)
        mask = torch.zeros(shape, dtype=torch.bool, device=self.device)
        mask[index] = True
        paid = place(rewards)
        if self.late_rewards is not None:  # at the last step of each episode
            last = mask.sum(1, keepdim=True) - 1
            paid.scatter_(1, last, torch.as_tensor(self.late_rewards, dtype=paid.dtype, device=self.device)[:, None])
        paid = self._leave_out_unpayable(paid)
        return Rollout(
            observations=self._by_episode(self.first) if self.first else map_many(place, observations),
            actions=place(actions),
            log_probs=place(log_probs),
            rewards=paid,
            mask=mask,
            terminated=torch.as_tensor(self.ends["terminated"], device=self.device),
            truncated=torch.as_tensor(self.ends["truncated"], device=self.device),
            groups=torch.as_tensor(self.groups, device=self.device),
            valid=torch.as_tensor(self.valid, device=self.device),
            success=torch.as_tensor(self.success, dtype=torch.float32, device=self.device),
            extras={
                name: torch.as_tensor(figures, dtype=torch.float32, device=self.device)
                for name, figures in self.extras.items()
            },
            final_observations=self._by_episode(self.last) if self.last else None,
        )

    def _leave_out_unpayable(self, rewards: torch.Tensor) -> torch.Tensor:
        """Let episodes whose rewards [N, T] are not finite count as errors; return the rewards with 0 in these rows."""
        worth = rewards.sum(1)
        finite = worth.isfinite()
        if not bool(finite.all()):
            bad = ~finite.cpu().numpy()
            self.valid[bad] = False
            self._figure("error")[bad] = 1.0
            self.failure = f"error: the environment paid {float(worth[~finite][-1])}"
        return rewards.where(finite[:, None], 0)

    def _by_episode(self, seen: list[tuple[np.ndarray, Obs]]) -> Obs:
        """Put rows in the order of their episodes [N, ...], zeros where an episode has none."""
        numbers = torch.as_tensor(np.concatenate([numbers for numbers, _ in seen]), device=self.device)

        def order(rows: torch.Tensor) -> torch.Tensor:
            return rows.new_zeros(self.num_episodes, *rows.shape[1:]).index_copy(0, numbers, rows)

        return map_obs(order, map_many(torch.cat, [obs for _, obs in seen]))


def _end_info(infos: dict[str, Any]) -> dict[str, Any]:
    """Return the info of the episodes that ended, which SAME_STEP keeps apart from the new episodes'."""
    return infos.get("final_info", infos)


def _numpy(flags: Any) -> np.ndarray:
    return flags.cpu().numpy() if isinstance(flags, torch.Tensor) else np.asarray(flags)


def columns_of(rows: list[dict[str, float]]) -> dict[str, np.ndarray]:
    """Return rows of named figures as columns, each with its mask."""
    columns: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        columns[name] = np.array([row.get(name, np.nan) for row in rows])
        columns[f"_{name}"] = np.array([name in row for row in rows])
    return columns
