"""Where an environment stands between two rollouts: its place in its stream of problems, its random generators.

Every rollout resets every slot, so no episode is under way then, and little has to be kept. An environment or wrapper
that carries more than its generator from one episode to the next offers `state_dict()` and `load_state_dict(state)`,
with plain values and tensors, as `TextGen-v0` does. The running statistics of Gymnasium's and stable-baselines3's
normalization are kept, too. Environments in other processes keep only their generators.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AsyncVectorEnv, VectorWrapper
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from .sb3_envs import AsVecEnv, FromVecEnv

_STATISTICS = ("obs_rms", "ret_rms", "return_rms")  # of normalizing wrappers: each has a mean, a variance and a count
_RETURN = "discounted_reward"  # Gymnasium's NormalizeReward carries it from episode to episode
_PROCESSES = (AsyncVectorEnv, VecEnv)  # may be environments in other processes, which are asked by name
_GENERATORS = (np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64, np.random.MT19937)


def env_state(env: Any) -> dict[str, Any] | None:
    """Return where an environment stands, vectorized or single, in plain values; None if it does not say.

    `lost` names what is not kept of environments in other processes.

    Raises:
        ClosedEnvironmentError: if these processes have ended.
    """
    layers = _layers(env)
    kept = [_layer_state(layer) for layer in layers]
    state: dict[str, Any] = {"kinds": [_kind(layer) for layer in layers], "layers": kept}
    base = layers[-1]
    if "own" in kept[-1]:
        return state
    if _kind(base) == "slots":
        slots = [env_state(slot) for slot in base.envs]
        return None if None in slots else state | {"slots": slots}
    try:
        generators = base.get_attr("np_random") if isinstance(base, _PROCESSES) else [base.np_random]
    except (AttributeError, NotImplementedError):
        return None
    except (OSError, EOFError) as error:
        raise ClosedEnvironmentError(f"the processes of {base!r} have ended") from error
    plain = [_plain(generator.bit_generator.state) for generator in generators]
    return state | {"generators": plain, "lost": _lost(base)}


def load_env_state(env: Any, state: dict[str, Any]) -> None:
    """Restore what `env_state` returned.

    Raises:
        ValueError: if it is the state of another kind of environment, or of other problems.
    """
    layers = _layers(env)
    base = layers[-1]
    if [_kind(layer) for layer in layers] != state["kinds"]:
        raise ValueError(f"the saved place is of another environment than {env!r}")
    if isinstance(base, VecEnv):
        base._reset_seeds()  # a seed that waits for the next reset would undo this
    for layer, kept in zip(layers, state["layers"], strict=True):
        _load_layer(layer, kept)
    saved = state.get("slots", state.get("generators", []))
    if saved and len(saved) != (present := base.num_envs if "slots" in state or isinstance(base, _PROCESSES) else 1):
        raise ValueError(f"the saved place has {len(saved)} slots; this environment {present}")
    if "slots" in state:
        for slot, place in zip(base.envs, saved, strict=True):
            load_env_state(slot, place)
    elif "generators" in state:
        _load_generators(base, [_generator(place) for place in saved])


def _layers(env: Any) -> list[Any]:
    """Return an environment with its wrappers, from the outside in."""
    layers = [env]
    while isinstance(layers[-1], (gym.Wrapper, VectorWrapper, VecEnvWrapper, FromVecEnv, AsVecEnv)):
        outer: Any = layers[-1]
        layers.append(outer.venv if isinstance(outer, (VecEnvWrapper, FromVecEnv)) else outer.env)
    return layers


def _kind(layer: Any) -> str:
    return "slots" if "envs" in vars(layer) else type(layer).__name__


def _lost(base: Any) -> list[str]:
    names = ("state_dict", *_STATISTICS)
    if isinstance(base, AsyncVectorEnv):
        return [name for name in names if any(base.call("has_wrapper_attr", name))]
    return [name for name in names if isinstance(base, VecEnv) and base.has_attr(name)]


def _load_generators(base: Any, generators: list[np.random.Generator]) -> None:
    if isinstance(base, VecEnv):
        for slot, generator in enumerate(generators):
            base.set_attr("np_random", generator, [slot])
    elif isinstance(base, AsyncVectorEnv):
        base.set_attr("np_random", generators)
    else:
        (base.np_random,) = generators


def _plain(state: Any) -> Any:
    """Return the state of a numpy generator without arrays."""
    if isinstance(state, dict):
        return {name: _plain(value) for name, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray) else state


def _generator(state: dict[str, Any]) -> np.random.Generator:
    bits: Any = {kind.__name__: kind for kind in _GENERATORS}[state["bit_generator"]]()
    bits.state = state
    return np.random.Generator(bits)


def _layer_state(layer: Any) -> dict[str, Any]:
    kept = {name: _moments(vars(layer)[name]) for name in _STATISTICS if vars(layer).get(name) is not None}
    if _RETURN in vars(layer):
        kept[_RETURN] = layer.discounted_reward.tolist()
    # The class is asked, since stable-baselines3's wrappers pass on what they do not have.
    return kept | ({"own": layer.state_dict()} if hasattr(type(layer), "state_dict") else {})


def _moments(moments: Any) -> Any:
    if isinstance(moments, dict):  # stable-baselines3, for dictionaries of observations
        return {name: _moments(each) for name, each in moments.items()}
    return [np.asarray(moments.mean).tolist(), np.asarray(moments.var).tolist(), float(moments.count)]


def _load_layer(layer: Any, state: dict[str, Any]) -> None:
    for name, saved in state.items():
        if name == "own":
            layer.load_state_dict(saved)
        elif name == _RETURN:
            layer.discounted_reward = np.asarray(saved)
        else:
            _load_moments(vars(layer)[name], saved)


def _load_moments(moments: Any, saved: Any) -> None:
    if isinstance(moments, dict):
        for name, each in moments.items():
            _load_moments(each, saved[name])
        return
    mean, var, moments.count = saved
    moments.mean = np.asarray(mean, dtype=np.asarray(moments.mean).dtype)
    moments.var = np.asarray(var, dtype=np.asarray(moments.var).dtype)
