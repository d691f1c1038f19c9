"""Somebody's environment against Gymnasium's interface: its spaces, its first reset and its first step are checked.

Each layer of wrappers is checked for itself, so that the line names the class at fault. The checks stand in front of a
method until its first call, and cost later ones nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from traceback import walk_tb
from types import TracebackType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from rlenv._checks import first_line

from ..errors import UserCodeError

PARTS = {"reset": "(observation, info)", "step": "(observation, reward, terminated, truncated, info)"}
SIGNATURES = {"reset": "reset(self, *, seed=None, options=None)", "step": "step(self, action)"}
NUMERIC = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
_NOT_THEIRS = ("gymnasium", __name__.partition(".")[0])  # packages whose frames are not of the user's code


def check_env(env: gym.Env) -> gym.Env:
    """Return an environment with checked spaces, of which the first reset and the first step will be checked.

    Args:
        env: of Gymnasium, with its wrappers. One that declares traits is not checked.

    Raises:
        UserCodeError: for an environment without spaces. The calls raise it for results of another form, and for an
            exception in them, which is its cause.
    """
    if "traits" in env.metadata:  # it was written for agents
        return env
    for layer in _layers(env):
        for name in ("observation_space", "action_space"):
            space = getattr(layer, name, None)
            if not isinstance(space, spaces.Space):
                has = f"no {name}" if space is None else f"the {name} {space!r:.60}"
                raise _fault(layer, f"it has {has}; set it to a space of gymnasium.spaces, such as Discrete(2)")
        for name in PARTS:
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
        env = gym.make(spec, **kwargs)
    except Exception as error:  # whatever the constructor raises
        name = getattr(spec.entry_point, "__name__", str(spec.entry_point).rpartition(":")[2])
        root = error.__cause__ or error  # Gymnasium raises a TypeError again
        if raised := _raised(root):
            raise UserCodeError(f"environment {name}: __init__ {raised}") from root
        if _module(error).startswith(("gymnasium.wrappers", "gymnasium.utils")):  # its own check of the spaces
            hint = "set observation_space and action_space to spaces of gymnasium.spaces, such as Discrete(2)"
            raise UserCodeError(f"environment {name}: {first_line(error).partition('. ')[0]}; {hint}") from None
        raise
    return check_env(env)


def _layers(env: gym.Env) -> list[gym.Env]:
    """Return an environment and the environments inside it, the outermost wrapper first."""
    return [env, *_layers(env.env)] if isinstance(env, gym.Wrapper) else [env]


def _first_call(env: gym.Env, name: str, own: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a method that these checks stand in front of, and give it its place back; `own`: an attribute, if it is."""
    if own is None:
        del vars(env)[name]
    else:
        vars(env)[name] = own
    returned = _called(env, name, getattr(env, name), args, kwargs)
    if said := _wrong_parts(env, name, returned):
        raise _fault(env, f"{name} returned {said}")
    return returned


def _called(env: gym.Env, name: str, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return the result of a method; an exception of the user's code becomes the cause of ours."""
    try:
        return method(*args, **kwargs)
    except UserCodeError:  # of a layer within
        raise
    except Exception as error:  # whatever it raises
        if raised := _raised(error):
            raise _fault(env, f"{name} {raised}") from error
        if isinstance(error, (TypeError, NotImplementedError)):  # called in another way, or not there
            raise _fault(env, f"{name} cannot be called ({first_line(error)}); write {SIGNATURES[name]}") from None
        raise


def _raised(error: BaseException) -> str:
    """Return the user code's exception in words, and cut its traceback to begin there; empty if others raised it."""
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None and _package(traceback) in _NOT_THEIRS:
        traceback = traceback.tb_next
    if traceback is None:
        return ""
    error.__traceback__ = traceback
    return f"raised {type(error).__name__}: {first_line(error)}"


def _module(error: BaseException) -> str:
    """Return the module that raised an exception."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__", ""))


def _package(traceback: TracebackType) -> str:
    return str(traceback.tb_frame.f_globals.get("__name__", "")).partition(".")[0]


def _fault(env: gym.Env, said: str) -> UserCodeError:
    return UserCodeError(f"environment {type(env).__name__}: {said}")


def _wrong_parts(env: gym.Env, name: str, returned: Any) -> str:
    """Return the fault of a method's result, with the allowed form; empty without a fault."""
    count, must = PARTS[name].count(",") + 1, f"it must return the tuple {PARTS[name]}"
    if not isinstance(returned, tuple):
        return f"{_shown(returned)}; {must}"
    if len(returned) != count:
        return f"{len(returned)} values; {must}"
    if said := _misfit(env.observation_space, returned[0]):
        return f"an observation that is not in observation_space: {said}"
    if not isinstance(returned[-1], Mapping):
        return f"the info {_shown(returned[-1])}; it must be a dictionary"
    if name == "reset":
        return ""
    _, reward, *ends, _ = returned
    if not _is_number(reward):
        return f"the reward {_shown(reward)}; it must be one number"
    for end, value in zip(("terminated", "truncated"), ends, strict=True):
        if _shape(value) != () or np.asarray(value).dtype.kind not in "biu":
            return f"{end}={_shown(value)}; it must be True or False"
    return ""


def _misfit(space: spaces.Space, seen: Any) -> str:
    """Return how an observation differs from its space; values beyond the bounds of a Box are allowed."""
    if isinstance(space, spaces.Dict):
        if not isinstance(seen, Mapping) or (missing := [key for key in space if key not in seen]):
            lacks = f"lacks {missing[0]!r}" if isinstance(seen, Mapping) else f"is {_shown(seen)}"
            return f"it {lacks}; allowed: a dictionary with {', '.join(map(repr, space))}"
        parts = ((key, _misfit(part, seen[key])) for key, part in space.items())
        return next((f"{key!r}: {said}" for key, said in parts if said), "")
    if not isinstance(space, NUMERIC):
        return ""
    allowed = f"allowed: {' '.join(str(space).split())}"
    if _shape(seen) is None or np.asarray(seen).dtype.kind not in "biuf":
        return f"it is {_shown(seen)}; {allowed}"
    if _shape(seen) != space.shape:
        return f"it has shape {_shape(seen)}; {allowed}"
    if not isinstance(space, spaces.Box) and not space.contains(np.asarray(seen, dtype=space.dtype)):
        return f"it is {_shown(seen)}; {allowed}"
    return ""


def _is_number(value: Any) -> bool:
    """Tell whether numpy takes a value as an element of an array of floats, and not because a text can be read as one.

    NaN is one: episodes that it ends are counted as errors.
    """
    if isinstance(value, (str, bytes)) or value is None or _shape(value) != ():
        return False
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _shape(value: Any) -> tuple[int, ...] | None:
    """Return the shape of an array, of something like it or of a number; None for lists of unequal length."""
    try:
        return np.shape(value)
    except (TypeError, ValueError):
        return None


def _shown(value: Any) -> str:
    """Return a value and its class on one line."""
    return f"{' '.join(f'{value!r:.60}'.split())} ({type(value).__name__})"
