"""Environments side by side whose finished slots wait, so that no surplus episodes are played."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import concatenate, iterate


class WaitingVectorEnv(SyncVectorEnv):
    """Gymnasium's `SyncVectorEnv` without autoreset, where stepping a finished slot does nothing and pays 0.

    Gymnasium's own modes step every slot at every call. A rollout of N episodes then also plays the beginnings of
    surplus episodes until its longest one is over: with 16 untrained poles that is as many steps again.

    Args:
        env_fns: functions that make the environments, one per slot.
        copy: whether observations are copied before they are returned.
    """

    metadata: dict[str, Any]
    _observations: Any

    def __init__(self, env_fns: Any, copy: bool = True) -> None:
        super().__init__(env_fns, copy=copy, autoreset_mode=AutoresetMode.DISABLED)
        traits = {**self.metadata.get("traits", {}), "finished_slots_may_step": True}
        self.metadata = {**self.metadata, "traits": traits}
        # A slot that was never reset is finished, too; the first reset may leave it out.
        self._env_obs = list(iterate(self.observation_space, self._observations))
        self._autoreset_envs[:] = True

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
        seen = deepcopy(self._observations) if self.copy else self._observations
        return seen, self._rewards.copy(), self._terminations.copy(), self._truncations.copy(), infos
