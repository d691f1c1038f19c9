"""Gymnasium's checks of an environment: of its spaces, its first reset and its first step.

Gymnasium warns of most faults, and those that it cannot go on with are refused here. Each layer of wrappers is called
for itself, so that the line names the class at fault. The checks stand in front of a method until its first call, and
cost later ones nothing.
"""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.passive_env_checker import (
    check_action_space,
    check_observation_space,
    env_reset_passive_checker,
    env_step_passive_checker,
)
from gymnasium.vector.utils import concatenate, create_empty_array

from rlenv._checks import first_line

from ..errors import UserCodeError

CHECKS: dict[str, Any] = {"reset": env_reset_passive_checker, "step": env_step_passive_checker}
FORMS = {
    "reset": "reset(self, *, seed=None, options=None), which returns (observation, info)",
    "step": "step(self, action), which returns (observation, reward, terminated, truncated, info), a number as reward",
}
_REFUSES = (AssertionError, NotImplementedError, TypeError, ValueError, gym.error.Error)  # what Gymnasium raises
_NOT_THEIRS = ("gymnasium", __name__.partition(".")[0])  # packages whose frames are not of the user's code


def check_env(env: gym.Env) -> gym.Env:
    """Return an environment with checked spaces, of which the first reset and the first step will be checked.

    Args:
        env: of Gymnasium, with its wrappers. One that declares traits is not checked.

    Raises:
        UserCodeError: for spaces that Gymnasium refuses. The calls raise it for results that Gymnasium refuses or that
            cannot be stored, and for an exception in them, which is its cause.
    """
    if "traits" in env.metadata:  # it was written for agents
        return env
    for layer in reversed(_layers(env)):  # a wrapper without spaces has those of the environment in it
        try:
            check_observation_space(getattr(layer, "observation_space", None))
            check_action_space(getattr(layer, "action_space", None))
        except _REFUSES as error:
            hint = "set observation_space and action_space to spaces of gymnasium.spaces, such as Discrete(2)"
            raise _fault(layer, f"{first_line(error)}; {hint}") from None
    for layer in _layers(env):
        for name in CHECKS:
            vars(layer)[name] = partial(_first_call, layer, name, vars(layer).get(name))
    return env


def make_checked(spec: EnvSpec, **kwargs: Any) -> gym.Env:
    """Return the environment of an entry of Gymnasium's registry, as `check_env` does.

    Args:
        spec: the entry.
        kwargs: of its constructor.

    Raises:
        UserCodeError: as `check_env` says; for an exception in the constructor, which is its cause.
    """
    try:
        env = gym.make(spec, **{"disable_env_checker": True, **kwargs})  # the same checks, without a class at fault
    except Exception as error:  # whatever the constructor raises
        name = getattr(spec.entry_point, "__name__", str(spec.entry_point).rpartition(":")[2])
        root = error.__cause__ or error  # Gymnasium raises a TypeError again
        if raised := _raised(root):
            raise UserCodeError(f"environment {name}: __init__ {raised}") from root
        raise
    return check_env(env)


def _layers(env: gym.Env) -> list[gym.Env]:
    """Return an environment and the environments inside it, the outermost wrapper first."""
    return [env, *_layers(env.env)] if isinstance(env, gym.Wrapper) else [env]


def _first_call(env: gym.Env, name: str, own: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a method that these checks stand in front of, and give it its place back; `own`: an attribute, if it is.

    An exception of the user's code becomes the cause of ours.
    """
    if own is None:
        del vars(env)[name]
    else:
        vars(env)[name] = own
    # As Gymnasium does, only what is inside all wrappers is checked: they would be warned of its faults again.
    call = getattr(env, name) if isinstance(env, gym.Wrapper) else partial(CHECKS[name], env)
    try:
        returned = call(*args, **kwargs)
        if name == "reset":
            obs, _ = returned
        else:
            obs, reward, _, _, _ = returned
            np.zeros(1)[0] = reward  # as a vector environment will store it
    except UserCodeError:  # of a layer within
        raise
    except Exception as error:  # whatever it raises
        if raised := _raised(error):
            raise _fault(env, f"{name} {raised}") from error
        if isinstance(error, _REFUSES):
            raise _fault(env, f"{name}: {first_line(error).rstrip('.')}; write {FORMS[name]}") from None
        raise
    if not _fits(env.observation_space, obs):
        seen = f"of shape {obs.shape}" if isinstance(obs, np.ndarray) else f"{obs!r:.60}"
        said = f"{name} returned an observation {seen} that does not fit observation_space {env.observation_space}"
        raise _fault(env, " ".join(said.split()))
    return returned


def _fits(space: gym.Space, obs: Any) -> bool:
    """Tell whether a vector environment can store an observation, and a policy make one of a discrete space one-hot."""
    try:
        stored = concatenate(space, [obs], create_empty_array(space))
    except (LookupError, TypeError, ValueError):
        return False
    return not isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)) or space.contains(stored[0])


def _raised(error: BaseException) -> str:
    """Return the user code's exception in words, and cut its traceback to begin there; empty if others raised it."""
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None and _package(traceback) in _NOT_THEIRS:
        traceback = traceback.tb_next
    if traceback is None:
        return ""
    error.__traceback__ = traceback
    return f"raised {type(error).__name__}: {first_line(error)}"


def _package(traceback: TracebackType) -> str:
    return str(traceback.tb_frame.f_globals.get("__name__", "")).partition(".")[0]


def _fault(env: gym.Env, said: str) -> UserCodeError:
    return UserCodeError(f"environment {type(env).__name__}: {said}")
