"""Act, step, store, restart finished slots: one loop for text and control.

A rollout is a set of N episodes fixed before the first step, all of them finished; see `record.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AutoresetMode, VectorEnv

from ..core.devices import to_device, to_host
from ..core.rollout import Obs, Rollout, map_many, map_obs
from ..policies import Policy
from .envs.env_state import env_state, load_env_state
from .envs.traits import EnvTraits
from .record import Record

RESTART_SHARE = 1 / 8  # of all slots; reading prompts takes a separate pass, so several are read at a time
OnStep = Callable[[int, dict[str, Any]], bool]


class Collector:
    """Collects rollouts from a vector environment, numpy or torch, in any of Gymnasium's autoreset modes.

    Args:
        envs: the environment.
        device: where the policy is.

    Attributes:
        failure: why the verifier failed the last time; empty if it never did.
        idle_seconds: spent waiting for the other agents of a `Stack`, since it was set to 0.
    """

    def __init__(self, envs: VectorEnv, device: torch.device) -> None:
        self.envs, self.device = envs, device
        self.mode: AutoresetMode = envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self.traits = EnvTraits.of(envs)
        self.slots_wait = self.mode is AutoresetMode.DISABLED and self.traits.finished_slots_may_step
        self._none = np.zeros(envs.num_envs, dtype=bool)
        self._seed: int | None = None
        self._place: dict[str, Any] | None = None  # the last one that was asked for
        self._warns = True
        self.failure = ""
        self.idle_seconds = 0.0

    def seed(self, seed: int) -> None:
        """Seed the environment at the start of the next rollout."""
        self._seed = seed

    def take_seed(self) -> int | None:
        """Return the seed for the next reset; None after the first one."""
        seed, self._seed = self._seed, None
        return seed

    def state_dict(self) -> dict[str, Any]:
        """Return where the environment stands between two rollouts; `env` is None if it does not say.

        If its processes have ended, that is where it stood the last time it was asked.
        """
        if self._seed is None:
            with suppress(ClosedEnvironmentError):
                self._place = env_state(self.envs)
        return {"seed": self._seed, "env": None if self._seed is not None else self._place}

    def load_state_dict(self, state: dict[str, Any], seed: int) -> None:
        """Restore what `state_dict` returned.

        Args:
            state: what `state_dict` returned.
            seed: for an environment that did not say where it stood.

        Raises:
            ValueError: if it is the place of another environment.
        """
        self._seed, self._place = state["seed"], state["env"]
        if self._place is not None:
            load_env_state(self.envs, self._place)
        elif self._seed is None:
            self._seed = seed
        self.warn_of_loss(state)

    def warn_of_loss(self, state: dict[str, Any]) -> None:
        """Warn once if something that the environment carries from episode to episode is not in its state."""
        if self._warns and state["seed"] is None and (state["env"] is None or state["env"].get("lost")):
            self._warns = False
            what = "nothing" if state["env"] is None else "only the random generators"
            warnings.warn(
                f"{what} of {self.envs!r} can be kept in a checkpoint (docs/reliability.md, Resuming): training "
                "continues from one in a fresh environment",
                stacklevel=4,
            )

    @torch.no_grad()
    def collect(
        self,
        policy: Policy,
        num_episodes: int,
        generator: torch.Generator | None = None,
        deterministic: bool = False,
        on_step: OnStep | None = None,
        progress: Mapping[str, Any] | None = None,
    ) -> Rollout | None:
        """Return `num_episodes` finished episodes; None if `on_step` ended the collection.

        Args:
            policy: acts.
            num_episodes: N.
            generator: for sampling actions.
            deterministic: whether to take the likeliest action instead.
            on_step: called after every step of the environment with the number of slots that took it and local
                variables; returning False ends it.
            progress: of the training, for environments that take it; see `EnvTraits.reset_options`.

        Raises:
            ValueError: if an episode ended without the verdict that it should have.
        """
        record = Record(num_episodes, self.envs.num_envs, self.device, self.traits.groups_span_slots, self.slots_wait)
        starts = np.arange(self.envs.num_envs) < (num_episodes if self.slots_wait else self.envs.num_envs)
        options: dict[str, Any] = {} if starts.all() else {"reset_mask": starts}
        if progress is not None and "progress" in self.traits.reset_options:
            options["progress"] = progress
        raw_obs, infos = self.envs.reset(seed=self.take_seed(), options=options or None)
        stores = not policy.obs_from_actions  # then observations are kept, and environments may reuse their buffers
        record.start(starts, infos)
        numpy_actor = policy.numpy_actor() if isinstance(raw_obs, np.ndarray) else None
        through_torch: tuple[Any, Any, Any] = (policy, self._to_device, torch.from_numpy)
        actor, convert, flags = through_torch if numpy_actor is None else (numpy_actor, to_single, np.asarray)
        obs: Any = convert(raw_obs, copy=stores)
        state = policy.initial_state(self.envs.num_envs)
        if policy.obs_from_actions:
            record.first_observations(obs, starts)
        while record.unfinished:
            actions, log_probs, state = actor.act(
                obs, state, flags(starts), deterministic, generator, playing=flags(record.playing)
            )
            step = self.envs.step(self._to_env(policy.for_env(actions), raw_obs))
            raw_obs, rewards, terminated, truncated, infos = step
            taken = record.add(actions, log_probs, convert(rewards), *((obs,) if stores else ()))
            ended, cut, dones = self._ends(terminated, truncated, infos)
            if np.count_nonzero(dones):  # `any` takes four times as long
                self._check_judged(dones, _end_info(infos))
                cut_off = record.counting(cut & ~ended)
                if len(cut_off):
                    record.final_observations(cut_off, self._final_observations(raw_obs, infos, cut_off))
                record.finish(dones, ended, cut, _end_info(infos))
            if on_step is not None and not on_step(taken, {"dones": dones, "infos": infos, "rewards": rewards}):
                return None
            raw_obs, starts = self._restart(record, raw_obs, dones, infos)
            obs = convert(raw_obs, copy=stores)
            if policy.obs_from_actions and starts.any():
                record.first_observations(obs, starts)
        rollout = record.rollout()
        self.failure = record.failure or self.failure
        return rollout

    def _restart(self, record: Record, obs: Any, dones: np.ndarray, infos: dict[str, Any]) -> tuple[Any, np.ndarray]:
        """Give finished slots their next episode; return observations and where they begin an episode."""
        if self.mode is AutoresetMode.SAME_STEP:
            starts = dones
        elif self.mode is AutoresetMode.NEXT_STEP:
            # The step after the end only brings the new episode's observation: it does not count.
            starts = record.rest(dones)
        else:
            starts = record.to_restart(RESTART_SHARE) if self.slots_wait else dones
            if np.count_nonzero(starts):
                obs, infos = self.envs.reset(options={"reset_mask": starts})
        if np.count_nonzero(starts):
            record.start(starts, infos)
        return obs, starts

    def _final_observations(self, obs: Any, infos: dict[str, Any], slots: np.ndarray) -> Obs:
        """Return what these slots, which have just ended, are looking at [n, ...]."""
        if self.mode is AutoresetMode.SAME_STEP:  # the observation is already the next episode's
            rows = [map_obs(lambda x: torch.as_tensor(x)[None], infos["final_obs"][slot]) for slot in slots]
            return self._to_device(map_many(torch.cat, rows))
        return map_obs(lambda x: x[torch.as_tensor(slots, device=x.device)], self._to_device(obs))

    def _ends(self, terminated: Any, truncated: Any, infos: dict[str, Any]) -> tuple[np.ndarray, ...]:
        """Return who was terminated, truncated, or either [B]; without a device read if the infos say nobody."""
        if self.traits.ends_are_in_infos and "_completion" not in _end_info(infos):
            return self._none, self._none, self._none
        ended, cut = terminated, truncated
        if isinstance(terminated, torch.Tensor):
            ended, cut = (flags.numpy() for flags in to_host(terminated, truncated))
        return np.asarray(ended), np.asarray(cut), np.asarray(ended) | np.asarray(cut)

    def _check_judged(self, dones: np.ndarray, info: dict[str, Any]) -> None:
        judged = info.get("_verdict_status", info.get("_verdict_future", self._none))
        if self.traits.verdicts_in_infos and (dones & ~judged).any():
            raise ValueError(
                "an episode ended without a verdict: a wrapper (TimeLimit?) cut it off; limit completions with "
                "max_new_tokens instead, or let the wrapper set info['verdict_status'] to 'ok' where it pays the reward"
            )

    def _to_device(self, obs: Any, copy: bool = True) -> Obs:
        """Return tensors where the policy is; double precision becomes single."""

        def convert(value: Any) -> torch.Tensor:
            tensor = torch.as_tensor(value)
            dtype = torch.float32 if tensor.dtype is torch.float64 else tensor.dtype
            there = to_device(tensor.to(dtype), self.device)
            return there.clone() if copy and there is tensor else there

        return map_obs(convert, obs)

    def _to_env(self, actions: Any, obs: Any) -> Any:
        example = next(iter(obs.values())) if isinstance(obs, dict) else obs
        if isinstance(example, torch.Tensor):
            return actions
        return numpy_actions(actions, self.envs.single_action_space)


def numpy_actions(actions: torch.Tensor | np.ndarray, space: gym.Space) -> np.ndarray:
    """Return a batch of actions as numpy environments take them: inside the bounds of a Box."""
    array = _numpy(actions)
    return np.clip(array, space.low, space.high) if isinstance(space, gym.spaces.Box) else array


def _end_info(infos: dict[str, Any]) -> dict[str, Any]:
    """Return the infos of the episodes that ended; with SAME_STEP, the others are of the new episodes."""
    return infos.get("final_info", infos)


def to_single(values: np.ndarray, copy: bool = True) -> np.ndarray:
    """Return a numpy array as `Collector._to_device` converts it: double precision becomes single."""
    if values.dtype != np.float64:
        return values.copy("K") if copy else values
    with np.errstate(over="ignore"):  # as in torch, what is too large becomes infinite
        return values.astype(np.float32)


def _numpy(values: Any) -> np.ndarray:
    return values.cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
