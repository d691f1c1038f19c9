"""Environments of stable-baselines3 as gymnasium's, and the other way round."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv
from typing_extensions import override

from ..rollout import map_obs
from .env_protocol import EnvSlots, EnvTraits
from .no_autoreset import InfosOfAnyKind
from .slot_infos import SlotInfos, slot_info

END_KEYS = ("terminal_observation", "TimeLimit.truncated")


class FromVecEnv(InfosOfAnyKind):
    """A `VecEnv` of stable-baselines3 as a gymnasium vector environment with SAME_STEP autoreset.

    Args:
        venv: such as a `DummyVecEnv` or a `VecNormalize`, whose normalised observations and rewards are used.
    """

    def __init__(self, venv: VecEnv) -> None:
        self.venv = venv
        self.num_envs = venv.num_envs
        self.single_observation_space, self.single_action_space = venv.observation_space, venv.action_space
        self.observation_space = batch_space(venv.observation_space, venv.num_envs)
        self.action_space = batch_space(venv.action_space, venv.num_envs)
        self.render_mode = venv.render_mode
        self.spec = self._of_first("spec")
        self.metadata = {**(self._of_first("metadata") or {}), "autoreset_mode": AutoresetMode.SAME_STEP}

    @override
    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.venv.seed(seed)
        if options:
            self.venv.set_options(options)
        obs = self.venv.reset()
        return obs, self._started(np.ones(self.num_envs, dtype=bool), {})

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step every slot; a slot whose episode ended returns the next one's first observation."""
        obs, rewards, dones, told = self.venv.step(actions)
        truncated = np.array([bool(info.get("TimeLimit.truncated", False)) for info in told]) & dones
        infos: dict[str, Any] = {}
        for slot, info in enumerate(told):
            rest = {key: value for key, value in info.items() if key not in END_KEYS}
            if dones[slot]:
                seen = {"final_obs": info["terminal_observation"]} if "terminal_observation" in info else {}
                rest = {**seen, "final_info": rest}
            infos = self._add_info(infos, rest, slot)
        return obs, rewards, dones & ~truncated, truncated, self._started(dones, infos)

    @override
    def close_extras(self, **kwargs: Any) -> None:
        self.venv.close()

    def _started(self, slots: np.ndarray, infos: dict[str, Any]) -> dict[str, Any]:
        for slot in np.flatnonzero(slots).tolist():
            infos = self._add_info(infos, self.venv.unwrapped.reset_infos[slot], slot)
        return infos

    def _of_first(self, name: str) -> Any:
        try:
            return self.venv.get_attr(name, 0)[0]
        except (AttributeError, NotImplementedError):
            return None


class AsVecEnv(VecEnv):
    """A gymnasium vector environment as a monitored `VecEnv` of stable-baselines3, which resets slots as they end.

    Native vector environments with NEXT_STEP autoreset use a step to reset. It appears as a step with a reward of 0 at
    the start of an episode, and does not count in the episode's length and return in `info["episode"]`.

    Args:
        env: numpy or torch, in any of gymnasium's autoreset modes.
    """

    def __init__(self, env: VectorEnv) -> None:
        self.env = env
        masked = EnvTraits.of(env).finished_slots_may_step or isinstance(env.unwrapped, (SyncVectorEnv, AsyncVectorEnv))
        self.slots = EnvSlots(env, skip_restarts=masked)
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self._returns, self._started = np.zeros((2, self.num_envs))
        self._lengths = np.zeros(self.num_envs, dtype=np.int64)

    @override
    def reset(self) -> Any:
        everywhere = np.ones(self.num_envs, dtype=bool)
        own = self._options[0]
        if any(each != own for each in self._options):
            raise ValueError(f"the options of the slots {self._options} differ; a vector environment takes one for all")
        obs, infos = self.slots.reset(everywhere, self._seeds[0], own=own)
        self._reset_seeds()
        self._reset_options()
        self._begin(everywhere)
        self.reset_infos = [slot_info(infos, slot) for slot in range(self.num_envs)]
        return _arrays(obs)

    @override
    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        """Step every slot and reset the slots that ended."""
        self._lengths += self.slots.playing
        step = self.slots.step(self._actions)
        obs, rewards = _arrays(step.observations), _arrays(step.rewards).astype(np.float32)
        infos = [*SlotInfos(step.infos, step.dones)]
        ended = np.flatnonzero(step.dones)
        for slot in ended.tolist():
            if "verdict_future" in infos[slot]:  # verdicts that come late are waited for here
                outcome = dict(infos[slot].pop("verdict_future").result())
                rewards[slot] = outcome.pop("reward")
                infos[slot] |= outcome
        self._returns += rewards
        if len(ended):
            final, rows = step.final_observations(ended)
            final = _arrays(final)
            for slot, row in zip(ended.tolist(), rows.tolist(), strict=True):
                infos[slot] |= {
                    "terminal_observation": map_obs(lambda x: x[row], final),  # noqa: B023
                    "TimeLimit.truncated": bool(step.truncated[slot] and not step.terminated[slot]),
                    "episode": {
                        "r": float(self._returns[slot]),
                        "l": int(self._lengths[slot]),
                        "t": round(time.perf_counter() - self._started[slot], 6),
                    },
                }
        self._begin(step.dones)
        raw, starts, reset_infos = self.slots.restart(step.dones, step)
        for slot in ended.tolist():
            self.reset_infos[slot] = slot_info(reset_infos, slot) if starts[slot] else {}
        return obs if raw is step.observations else _arrays(raw), rewards, step.dones.copy(), infos

    def _begin(self, slots: np.ndarray) -> None:
        """Begin the statistics of new episodes in these slots, bool [B]."""
        self._returns[slots], self._lengths[slots], self._started[slots] = 0.0, 0, time.perf_counter()

    @override
    def close(self) -> None:
        self.env.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Return the picture of each slot [height, width, 3], with `render_mode="rgb_array"`."""
        return [np.asarray(picture) for picture in self.env.render() or ()]

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return the vector environment's attribute, once per slot."""
        return [getattr(self.env, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set the vector environment's attribute, for all slots."""
        setattr(self.env, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call the vector environment's method, which is for all slots."""
        return [getattr(self.env, method_name)(*method_args, **method_kwargs)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return True for a `Monitor`, since infos have its entries, and False for any other wrapper, for each slot."""
        return [wrapper_class is Monitor for _ in self._get_indices(indices)]


def as_vec_env(env: VectorEnv) -> VecEnv:
    """Return the `VecEnv` that an environment was made from, or a new one around it.

    Raises:
        ValueError: for anything but a gymnasium VectorEnv.
    """
    if not isinstance(env, VectorEnv):
        raise ValueError(
            f"as_vec_env takes a gymnasium VectorEnv, such as one of gym.make_vec, got {env!r:.80}; "
            "stable-baselines3's DummyVecEnv and make_vec_env make one of single environments"
        )
    return env.venv if isinstance(env, FromVecEnv) else AsVecEnv(env)


def _arrays(value: Any) -> Any:
    """Return copies of tensors or arrays, also in a dict, as arrays."""
    return map_obs(lambda x: x.cpu().numpy().copy() if isinstance(x, torch.Tensor) else np.array(x), value)
