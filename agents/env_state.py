"""Where an environment stands between two rollouts: its place in its stream of problems, its random generators.

Every rollout resets every slot, so no episode is under way then, and little has to be kept. An environment that carries
more than its generator from one episode to the next offers `state_dict()` and `load_state_dict(state)`, with plain
values and tensors, as `TextGen-v0` does. Of wrappers, the running statistics of Gymnasium's and stable-baselines3's
normalization are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

_STATISTICS = ("obs_rms", "ret_rms", "return_rms")  # of normalizing wrappers: each has a mean, a variance and a count
_RETURN = "discounted_reward"  # Gymnasium's NormalizeReward carries it from episode to episode
_GENERATORS = (np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64, np.random.MT19937)


def env_state(env: Any) -> dict[str, Any]:
    """Return where an environment stands, vectorized or single, in plain values.

    Raises:
        AttributeError: if it has neither `state_dict` nor Gymnasium's `np_random`.
    """
    *wrappers, base = _layers(env)
    state: dict[str, Any] = {"wrappers": [_statistics(wrapper) for wrapper in wrappers]}
    if hasattr(base, "state_dict"):
        return state | {"own": base.state_dict()}
    if hasattr(base, "envs"):
        return state | {"slots": [env_state(slot) for slot in base.envs]}
    generators = base.get_attr("np_random") if hasattr(base, "get_attr") else [base.np_random]
    return state | {"generators": [_plain(generator.bit_generator.state) for generator in generators]}


def load_env_state(env: Any, state: dict[str, Any]) -> None:
    """Restore what `env_state` returned.

    Raises:
        ValueError: if it is the state of another kind of environment, or of other problems.
    """
    *wrappers, base = _layers(env)
    if isinstance(base, VecEnv):
        base._reset_seeds()  # a seed that waits for the next reset would undo this
    try:
        if "own" in state:
            base.load_state_dict(state["own"])
        elif "slots" in state:
            if len(base.envs) != len(state["slots"]):
                raise ValueError(f"the saved place has {len(state['slots'])} slots; this environment {len(base.envs)}")
            for slot, saved in zip(base.envs, state["slots"], strict=True):
                load_env_state(slot, saved)
        else:
            _load_generators(base, [_generator(saved) for saved in state["generators"]])
        for wrapper, saved in zip(wrappers, state["wrappers"], strict=True):
            _load_statistics(wrapper, saved)
    except (AttributeError, KeyError) as error:
        raise ValueError(f"the saved place is of another environment than {base!r}: {error}") from error


def _layers(env: Any) -> list[Any]:
    """Return an environment with its wrappers, from the outside in."""
    layers = [env]
    while (inner := vars(layers[-1]).get("env", vars(layers[-1]).get("venv"))) is not None:
        layers.append(inner)
    return layers


def _load_generators(base: Any, generators: list[np.random.Generator]) -> None:
    if isinstance(base, VecEnv):
        for slot, generator in enumerate(generators):
            base.set_attr("np_random", generator, [slot])
    elif hasattr(base, "set_attr"):  # Gymnasium's environments in other processes
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


def _statistics(wrapper: Any) -> dict[str, Any]:
    held = {name: vars(wrapper).get(name) for name in _STATISTICS}
    kept = {name: _moments(moments) for name, moments in held.items() if moments is not None}
    if _RETURN in vars(wrapper):
        kept[_RETURN] = wrapper.discounted_reward.tolist()
    return kept


def _moments(moments: Any) -> Any:
    if isinstance(moments, dict):  # stable-baselines3, for dictionaries of observations
        return {name: _moments(each) for name, each in moments.items()}
    return [np.asarray(moments.mean).tolist(), np.asarray(moments.var).tolist(), float(moments.count)]


def _load_statistics(wrapper: Any, state: dict[str, Any]) -> None:
    for name, saved in state.items():
        if name == _RETURN:
            wrapper.discounted_reward = np.asarray(saved)
        else:
            _load_moments(vars(wrapper)[name], saved)


def _load_moments(moments: Any, saved: Any) -> None:
    if isinstance(moments, dict):
        for name, each in moments.items():
            _load_moments(each, saved[name])
        return
    mean, var, moments.count = saved
    moments.mean = np.asarray(mean, dtype=np.asarray(moments.mean).dtype)
    moments.var = np.asarray(var, dtype=np.asarray(moments.var).dtype)
