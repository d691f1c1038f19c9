"""Where an environment stands between two rollouts: its place in its stream of problems, its random generators.

Every rollout resets every slot, so no episode is under way then, and little has to be kept. An environment or wrapper
that carries more than its generator from one episode to the next offers `state_dict()` and `load_state_dict(state)`,
with plain values and tensors, as `TextGen-v0` does. Of the wrappers of Gymnasium and stable-baselines3, only those that
normalize carry anything on. Environments in other processes keep only their generators.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AsyncVectorEnv, VectorEnv, VectorWrapper
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

# What normalizing wrappers carry on: running means, variances and counts, and the return that NormalizeReward divides.
_STATISTICS = ("obs_rms", "ret_rms", "return_rms", "discounted_reward")
_LIBRARIES = ("gymnasium", "stable_baselines3", __package__)  # whose wrappers carry on nothing else
_GENERATORS = {kind.__name__: kind for kind in np.random.BitGenerator.__subclasses__()}


def env_state(env: Any) -> dict[str, Any] | None:
    """Return where an environment stands, vectorized or single, in plain values; None if it does not say.

    It is a tree: wrappers and environments side by side have `parts`. `lost` says what cannot be kept, if anything.

    Raises:
        ClosedEnvironmentError: if its processes have ended.
    """
    parts: list[Any] = [env_state(part) for part in _parts(env)]
    if None in parts:
        return None
    state: dict[str, Any] = {"kind": _kind(env), "parts": parts, "generators": []}
    state["statistics"] = {name: _plain(vars(env)[name]) for name in _STATISTICS if vars(env).get(name) is not None}
    # The class is asked, since stable-baselines3's wrappers pass on what they do not have.
    state["own"] = env.state_dict() if hasattr(type(env), "state_dict") else None
    state["lost"] = list(parts[0]["lost"]) if parts else []  # the same in all slots
    if _is_silent(env, state):
        state["lost"].append(f"nothing of the wrapper {type(env).__name__}")
    if not parts and state["own"] is None:
        try:
            generators = env.get_attr("np_random") if _in_processes(env) else [env.np_random]
        except (AttributeError, NotImplementedError):
            return None
        except (OSError, EOFError) as error:
            raise ClosedEnvironmentError(f"the processes of {env!r} have ended") from error
        state["generators"] = [_plain(generator.bit_generator.state) for generator in generators]
        if _in_processes(env) and any(_holds(env, name) for name in ("state_dict", *_STATISTICS)):
            state["lost"].append(f"only the random generators of {env!r}")
    return state


def load_env_state(env: Any, state: dict[str, Any]) -> None:
    """Restore the state from `env_state`.

    Raises:
        ValueError: if it is the state of another kind of environment, or of other problems.
    """
    parts = _parts(env)
    if _kind(env) != state["kind"]:
        raise ValueError(f"the saved place is of another environment than {env!r}")
    saved = len(state["parts"] or state["generators"])
    present = len(parts) or (env.num_envs if _in_processes(env) else 1)
    if saved != present and (saved or parts):
        raise ValueError(f"the saved place has {saved} slots; this environment {present}")
    for part, place in zip(parts, state["parts"], strict=True):
        load_env_state(part, place)
    if isinstance(env, VecEnv):
        env._reset_seeds()  # a seed that waits for the next reset would undo this
    if state["own"] is not None:
        env.load_state_dict(state["own"])
    _restore(env, state["statistics"])
    generators = [_generator(place) for place in state["generators"]]
    if isinstance(env, AsyncVectorEnv):
        env.set_attr("np_random", generators)
    elif isinstance(env, VecEnv):
        for slot, generator in enumerate(generators):
            env.set_attr("np_random", generator, [slot])
    elif generators:
        (env.np_random,) = generators


def _parts(env: Any) -> list[Any]:
    """Return the environment in a wrapper, or the environments of slots; nothing for others."""
    if isinstance(env, (VecEnvWrapper, VectorEnv)) and "venv" in vars(env):
        return [env.venv]
    if isinstance(env, (gym.Wrapper, VectorWrapper, VecEnv)) and "env" in vars(env):
        return [env.env]
    return list(vars(env).get("envs", ()))


def _kind(env: Any) -> str:
    return "slots" if "envs" in vars(env) else type(env).__name__


def _is_silent(env: Any, state: dict[str, Any]) -> bool:
    """Return whether this is a user's wrapper without methods to save its state."""
    wraps = bool(state["parts"]) and "envs" not in vars(env)
    return wraps and state["own"] is None and not type(env).__module__.startswith(_LIBRARIES)


def _in_processes(env: Any) -> bool:
    """Tell whether environments may be in other processes, which are asked by name."""
    return isinstance(env, (AsyncVectorEnv, VecEnv))


def _holds(env: Any, name: str) -> bool:
    return any(env.call("has_wrapper_attr", name)) if isinstance(env, AsyncVectorEnv) else env.has_attr(name)


def _plain(value: Any) -> Any:
    """Return statistics or the state of a numpy generator without arrays and objects."""
    if isinstance(value, dict) or hasattr(value, "__dict__"):
        return {name: _plain(each) for name, each in (value if isinstance(value, dict) else vars(value)).items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _restore(owner: Any, saved: dict[str, Any]) -> None:
    """Restore statistics; stable-baselines3 has dictionaries of them, for observations that are dictionaries."""
    for name, value in saved.items():
        present = owner[name] if isinstance(owner, dict) else getattr(owner, name)
        if isinstance(value, dict):
            _restore(present, value)
        else:  # a plain number stays one: an array in its place would turn float32 statistics into float64
            is_array = isinstance(present, (np.ndarray, np.generic))
            setattr(owner, name, np.asarray(value, dtype=present.dtype) if is_array else value)


def _generator(state: dict[str, Any]) -> np.random.Generator:
    bits: Any = _GENERATORS[state["bit_generator"]]()
    bits.state = state
    return np.random.Generator(bits)
