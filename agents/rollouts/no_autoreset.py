"""Environments side by side; finished slots wait until they are reset, so that no surplus episodes are played."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, iterate

from .slot_infos import in_slot


class InfosOfAnyKind(VectorEnv):
    """A vector environment whose slots may have infos of different kinds under one name.

    Gymnasium's column has the type of the first slot's info: after a 1, another slot's 0.5 becomes 0, and its None
    stops the environment. Here such a column becomes an array of objects.
    """

    def _add_info(self, vector_infos: dict[str, Any], env_info: dict[str, Any], env_num: int) -> dict[str, Any]:
        for key, value in env_info.items():
            column = vector_infos.get(key)
            if column is None or _fits(column, value):
                super()._add_info(vector_infos, {key: value}, env_num)
                continue
            known = vector_infos[f"_{key}"]
            objects = np.full(self.num_envs, None, dtype=object)
            for slot in np.flatnonzero(known).tolist():
                objects[slot] = in_slot(column, slot)
            objects[env_num], known[env_num] = value, True
            vector_infos[key] = objects
        return vector_infos


class NoAutoresetVectorEnv(InfosOfAnyKind, SyncVectorEnv):
    """Gymnasium's `SyncVectorEnv` without autoreset, where stepping a finished slot does nothing and pays 0.

    Gymnasium's own modes step every slot at every call. A rollout of N episodes then also plays the beginnings of
    surplus episodes until its longest one is over: with 16 untrained poles that is as many steps again.

    Args:
        env_fns: functions that make the environments, one per slot.
    """

    metadata: dict[str, Any]
    _observations: Any

    def __init__(self, env_fns: Any) -> None:
        super().__init__(env_fns, autoreset_mode=AutoresetMode.DISABLED)
        traits = {**self.metadata.get("traits", {}), "finished_slots_may_step": True}
        self.metadata = {**self.metadata, "traits": traits}
        # A slot that was never reset is finished, too; the first reset may leave it out.
        self._env_obs = list(iterate(self.observation_space, self._observations))
        self._autoreset_envs: np.ndarray = np.ones(self.num_envs, dtype=bool)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step the slots that run; see `SyncVectorEnv.step`."""
        self._rewards[:] = 0.0
        self._terminations[:] = self._truncations[:] = False
        infos: dict[str, Any] = {}
        for slot, action in enumerate(iterate(self.action_space, actions)):
            if not self._autoreset_envs[slot]:
                obs, reward, terminated, truncated, info = self.envs[slot].step(action)
                self._env_obs[slot], self._rewards[slot] = obs, reward
                self._terminations[slot], self._truncations[slot] = terminated, truncated
                infos = self._add_info(infos, info, slot)
        self._autoreset_envs |= self._terminations | self._truncations
        self._observations = concatenate(self.single_observation_space, self._env_obs, self._observations)
        ends = self._terminations.copy(), self._truncations.copy()
        return deepcopy(self._observations), self._rewards.copy(), *ends, infos


class NoAutoresetCartPole(NoAutoresetVectorEnv):
    """A `NoAutoresetVectorEnv` of CartPole that steps all slots at once, as Gymnasium's `CartPoleVectorEnv` does.

    Episodes begin in the slots' own environments, so each slot plays what it would play alone, to rounding. Their
    state is not updated after that; only their generators are used.

    Args:
        env_fns: functions that make CartPole without changes, one per slot.
    """

    def __init__(self, env_fns: Any) -> None:
        super().__init__(env_fns)
        self._batch = CartPoleVectorEnv(self.num_envs, self.envs[0].spec.max_episode_steps)
        self._batch.reset(seed=0)
        self._batch.state[:] = 0.0

    @staticmethod
    def fits(spec: EnvSpec, kwargs: Any) -> bool:
        """Tell whether an id, made with these arguments, is CartPole without changes."""
        entries = tuple(f"{one.__module__}:{one.__name__}" for one in (CartPoleEnv, CartPoleVectorEnv))
        plain = not (kwargs or spec.kwargs or spec.additional_wrappers) and spec.max_episode_steps is not None
        return plain and (spec.entry_point, spec.vector_entry_point) == entries

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start episodes in the slots of the mask in `options`; see `SyncVectorEnv.reset`."""
        chosen = (options or {}).get("reset_mask", np.ones(self.num_envs, dtype=bool))
        super().reset(seed=seed, options=options)
        for slot in np.flatnonzero(chosen):
            self._batch.state[:, slot] = self.envs[slot].unwrapped.state
        self._batch.steps[chosen] = 0
        return self._batch.state.T.astype(np.float32), {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step the slots that run; see `SyncVectorEnv.step`."""
        waits, before = self._autoreset_envs, self._batch.state
        self._batch.prev_done = waits  # these it starts anew instead, which pays nothing; they get their state back
        obs, rewards, terminated, truncated, infos = self._batch.step(actions)
        if np.count_nonzero(waits):
            np.copyto(self._batch.state, before, where=waits)
            np.copyto(obs, before.T, where=waits[:, None], casting="same_kind")
        self._autoreset_envs = waits | self._batch.prev_done
        return obs, rewards, terminated, truncated, infos


def _fits(column: Any, value: Any) -> bool:
    """Tell whether a column, a dictionary or an array, can hold an info of another slot as it is."""
    if isinstance(column, dict) or isinstance(value, dict):
        return isinstance(column, dict) and isinstance(value, dict)
    is_number = isinstance(value, (bool, int, float, np.generic, np.ndarray))
    same = is_number and np.asarray(value).dtype == column.dtype and np.shape(value) == column.shape[1:]
    return same or column.dtype == object
