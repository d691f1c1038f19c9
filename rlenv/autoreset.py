"""Gymnasium's autoreset modes: a batched environment whose slots restart by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorWrapper


class Autoreset(VectorWrapper):  # generic from Gymnasium 1.4 on, a plain class before
    """Slots that restart in the step after their episode's end (NEXT_STEP), or in the same step (SAME_STEP).

    Args:
        env: a `TextGenVectorEnv`, which restarts slots by `reset(options={"reset_mask": mask})`.
        mode: one of the two.
    """

    def __init__(self, env: Any, mode: AutoresetMode) -> None:
        super().__init__(env)
        self.slots, self.mode = env, mode
        env.settles_always = True  # for nobody has to call `reset` again
        self.metadata = {**env.metadata, "autoreset_mode": mode}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the slots and restart the finished ones, as the autoreset mode says."""
        before = self.slots.playing
        obs, rewards, terminated, truncated, infos = self.slots.step(actions)
        ended = before & ~self.slots.playing
        restarted = ended if self.mode is AutoresetMode.SAME_STEP else ~before
        if restarted.any():
            if self.mode is AutoresetMode.SAME_STEP:
                infos = self._final(obs, infos, ended)
            obs, starts = self.slots.reset(options={"reset_mask": restarted})
            infos |= starts
        return obs, rewards, terminated, truncated, infos

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state; the inner environment has all state between rollouts."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore nothing."""

    def _final(self, obs: dict[str, Any], infos: dict[str, Any], ended: np.ndarray) -> dict[str, Any]:
        """Return infos in which the keys of ended episodes have moved into `final_info`."""
        keys = [key for key in infos if f"_{key}" in infos and infos[f"_{key}"][ended].any()]
        final = {name: infos.pop(name) for key in keys for name in (key, f"_{key}")}
        final_obs = np.full(len(ended), None, dtype=object)
        for slot in np.flatnonzero(ended):
            final_obs[slot] = {key: value[slot] for key, value in obs.items()}
        return {**infos, "final_obs": final_obs, "_final_obs": ended, "final_info": final, "_final_info": ended.copy()}
