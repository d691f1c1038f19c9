"""From what a user calls an environment to a vector environment: an id, an Env, a VectorEnv."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import torch
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import SyncVectorEnv, VectorEnv


def make_envs(env: Any, num_envs: int, env_kwargs: Mapping[str, Any] | None, **offers: Any) -> VectorEnv:
    """Return the vector environment that `env` stands for.

    Args:
        env: an id ("CartPole-v1", "package:Name-v0"), a single environment or a vector environment.
        num_envs: B, the number of slots where an id is given.
        env_kwargs: for the environment's constructor, where an id is given.
        offers: settings an agent would like to choose (device, group_size); taken where the environment class lists
            them in `metadata["agent_settings"]` and `env_kwargs` does not.

    Raises:
        ValueError: for an unknown id (with the closest match), bad arguments, or something that is no environment.
    """
    if isinstance(env, VectorEnv):
        return env
    if isinstance(env, gym.Env):
        return SyncVectorEnv([lambda: env])
    wanted = {name: value for name, value in offers.items() if name in agent_settings(env)}
    try:
        return gym.make_vec(env, num_envs=num_envs, **{**wanted, **(env_kwargs or {})})
    except (gym.error.Error, TypeError) as error:
        raise ValueError(f"environment {env!r} with {dict(env_kwargs or {})}: {_first_line(error)}") from error


def single_spaces(env: Any, env_kwargs: Mapping[str, Any] | None) -> tuple[gym.Space, gym.Space]:
    """Return observation and action space of one environment; an id is made once with a single slot to ask it."""
    if isinstance(env, str):
        probe = make_envs(env, 1, env_kwargs)
        probe.close()
        return probe.single_observation_space, probe.single_action_space
    if isinstance(env, VectorEnv):
        return env.single_observation_space, env.single_action_space
    return env.observation_space, env.action_space


def agent_settings(env_id: Any) -> tuple[str, ...]:
    """Return the constructor arguments that an environment given by its id lets agents choose.

    Raises:
        ValueError: for an unknown id, with the closest match, or something that is no environment.
    """
    if isinstance(env_id, (gym.Env, VectorEnv)):
        return ()
    if not isinstance(env_id, str):
        raise ValueError(f"an environment is an id, a gymnasium.Env or a gymnasium VectorEnv, got {env_id!r}")
    try:
        entry = gym.spec(env_id).vector_entry_point
    except (gym.error.Error, ModuleNotFoundError) as error:
        raise ValueError(f"unknown environment {env_id!r}: {_first_line(error)}") from error
    creator = load_env_creator(entry) if isinstance(entry, str) else entry
    return tuple(getattr(creator, "metadata", {}).get("agent_settings", ()))


def resolve_device(device: str | torch.device, wants_accelerator: bool) -> torch.device:
    """Return the torch device; "auto" is CUDA where there is one and the environment can live on it, else the CPU.

    Raises:
        ValueError: if there is no such device on this machine.
    """
    if device == "auto":
        return torch.device("cuda" if wants_accelerator and torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
        torch.Generator(resolved)
        torch.empty(0, device=resolved)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ValueError(f"device {str(device)!r} cannot be used here: {_first_line(error)}") from error
    return resolved


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
