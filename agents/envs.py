"""From what a user calls an environment to a vector environment: an id, an Env, a VectorEnv."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import torch
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import SyncVectorEnv, VectorEnv
from stable_baselines3.common.vec_env import VecEnv

from .checks import check_count
from .sb3_envs import FromVecEnv
from .waiting_envs import WaitingVectorEnv

# What our own loop can do with, and plain users of the environment would not expect.
LOOP_OFFERS = {"late_verdicts": True, "flag_errors": True}
_HOW_TO_BATCH = {"vectorization_mode", "vector_kwargs"}  # arguments of gymnasium.make_vec


def make_envs(
    env: Any, num_envs: int, env_kwargs: Mapping[str, Any] | None, skip_finished: bool = False, **offers: Any
) -> VectorEnv:
    """Return the vector environment that `env` stands for.

    Args:
        env: an id ("CartPole-v1", "package:Name-v0"), a single environment, a vector environment or a `VecEnv` of
            stable-baselines3.
        num_envs: B, the number of slots where an id is given.
        env_kwargs: for the environment's constructor, where an id is given; `vectorization_mode` and `vector_kwargs`
            are for `gymnasium.make_vec`.
        skip_finished: whether slots should wait between two episodes instead of playing surplus ones, for training,
            where every step is counted. Then an id makes a `WaitingVectorEnv`, unless its registered vector environment
            has slots that wait, or `vectorization_mode` asks for another kind.
        offers: settings an agent would like to choose (device, group_size, `LOOP_OFFERS`); taken where the environment
            class lists them in `metadata["agent_settings"]` and `env_kwargs` does not.

    Raises:
        ValueError: for an unknown id (with the closest match), bad arguments, or something that is no environment.
    """
    if isinstance(env, VectorEnv):
        return env
    if isinstance(env, VecEnv):
        return FromVecEnv(env)
    if isinstance(env, gym.Env):
        return WaitingVectorEnv([lambda: env]) if skip_finished else SyncVectorEnv([lambda: env])
    wanted = {name: value for name, value in offers.items() if name in agent_settings(env)}
    kwargs = {**wanted, **(env_kwargs or {})}
    try:
        if skip_finished and not kwargs.keys() & _HOW_TO_BATCH and not _slots_wait(env):
            return WaitingVectorEnv([lambda: gym.make(env, **kwargs)] * num_envs)
        return gym.make_vec(env, num_envs=num_envs, **kwargs)
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
    if isinstance(env, (gym.Env, VecEnv)):
        return env.observation_space, env.action_space
    allowed = "an id, a gymnasium.Env, a gymnasium VectorEnv or a VecEnv of stable-baselines3"
    raise ValueError(f"an environment is {allowed}, got {env!r}")


def step_limit(env: VectorEnv, given: int | None, name: str) -> int:
    """Return the steps of the longest episode there can be: what was given, else what the environment says.

    Args:
        env: says it in `metadata["max_episode_steps"]` or its registration.
        given: by the user.
        name: of the user's argument.

    Raises:
        ValueError: if nobody says, or the given number is no positive whole number.
    """
    if given is not None:
        return check_count(name, given)
    limits: list[Any] = []
    for one in (env, *getattr(env.unwrapped, "envs", ())):
        limits.append(one.metadata.get("max_episode_steps"))
        if one.spec is not None:
            limits += [one.spec.kwargs.get("max_episode_steps"), one.spec.max_episode_steps]
    known = next((limit for limit in limits if limit), None)
    if known is None:
        raise ValueError(f"the environment does not say how long an episode may be: pass {name}")
    return int(known)


def shown_id(env: VectorEnv) -> str:
    """Return the quoted id of an environment or of its first slot; "id" if it has none."""
    specs = (one.spec for one in (env, *getattr(env.unwrapped, "envs", ())))
    return next((repr(spec.id) for spec in specs if spec is not None), "id")


def find_spec(env_id: str) -> EnvSpec:
    """Return what Gymnasium's registry knows of an id.

    Raises:
        ValueError: for an unknown id, with the closest match.
    """
    module, _, name = env_id.rpartition(":")
    try:
        if module:  # "package:Name-v0": importing the package registers the environment
            importlib.import_module(module)
        return gym.spec(name or env_id)
    except (gym.error.Error, ImportError, TypeError) as error:
        raise ValueError(f"unknown environment {env_id!r}: {_first_line(error)}") from error


def agent_settings(env_id: str) -> tuple[str, ...]:
    """Return the constructor arguments that an environment given by its id lets agents choose.

    Raises:
        ValueError: for an unknown id, with the closest match.
    """
    return tuple(_vector_metadata(env_id).get("agent_settings", ()))


def _slots_wait(env_id: str) -> bool:
    """Tell whether slots of the registered vector environment wait, or there is no other kind."""
    spec = find_spec(env_id)
    return spec.entry_point is None or bool(_vector_metadata(env_id).get("finished_slots_may_step"))


def _vector_metadata(env_id: str) -> Mapping[str, Any]:
    """Return the metadata of the registered vector environment's class, if any."""
    entry = find_spec(env_id).vector_entry_point
    creator = load_env_creator(entry) if isinstance(entry, str) else entry
    return getattr(creator, "metadata", {})


def named_by_checkpoint(env_id: str, env_kwargs: Mapping[str, Any], trust: bool) -> dict[str, Any]:
    """Return the arguments with which an environment that a checkpoint names is made.

    Args:
        env_id: in the checkpoint.
        env_kwargs: its arguments.
        trust: whether names in the checkpoint may import modules. Otherwise an environment that has the setting `trust`
            is told, and the id may name our own package or a module that has been imported already.

    Raises:
        ValueError: for the id of another module, without trust; for an unknown id.
    """
    module = env_id.rpartition(":")[0]
    if not trust and module not in ("", "rlenv") and module not in sys.modules:
        raise ValueError(
            f"the checkpoint names the environment {env_id!r}, which imports {module!r} and may run any code; "
            "if you trust it, pass --trust (Python: trust=True)"
        )
    return {**env_kwargs, **({"trust": trust} if "trust" in agent_settings(env_id) else {})}


def resolve_device(device: str | torch.device, env: Any) -> torch.device:
    """Return the torch device; "auto" is where the environment lives, or would best live.

    That is the device of an environment object that has one, CUDA for an id whose environment can live there and a
    machine that has it, else the CPU.

    Raises:
        ValueError: if there is no such device on this machine.
    """
    if device == "auto":
        if not isinstance(env, str):
            return torch.device(getattr(env.unwrapped, "device", "cpu"))
        return torch.device("cuda" if "device" in agent_settings(env) and torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
        torch.empty(0, device=resolved)
        torch.Generator(resolved)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = _first_line(error).split(". ")[0]  # advice on linking torch follows
        usable = ", ".join(["auto", "cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))])
        raise ValueError(f"device {str(device)!r} cannot be used here: {reason}; allowed: {usable}") from error
    return resolved


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
