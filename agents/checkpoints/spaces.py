"""Spaces in a checkpoint, as JSON: an agent that was trained on an object can then be loaded without it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

MOST = 2**24  # numbers in an observation or action; a checkpoint may name any
_DTYPES = ("float", "int", "uint", "bool")


def described(space: spaces.Space) -> dict[str, Any] | None:
    """Return a space of one environment in plain values; None if it is of another kind than `space_of` makes."""
    if isinstance(space, spaces.Dict):
        parts = {name: described(part) for name, part in space.spaces.items()}
        return None if None in parts.values() else {"kind": "Dict", "spaces": parts}
    if type(space) is spaces.Box:
        ends = {"low": _short(space.low), "high": _short(space.high)}
        return {"kind": "Box", **ends, "shape": list(space.shape), "dtype": str(space.dtype)}
    if type(space) is spaces.Discrete:
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if type(space) is spaces.MultiDiscrete and not space.start.any():
        return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist()}
    if type(space) is spaces.MultiBinary:
        return {"kind": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.n)}
    return None


def space_of(saved: Any) -> spaces.Space:
    """Return the space that `described` returned the values of.

    Raises:
        ValueError: for anything else.
    """
    try:
        return _KINDS[saved["kind"]](saved)
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise ValueError(f"the space {saved!r:.80} in the checkpoint cannot be read: {error!s:.80}") from error


def _short(ends: np.ndarray) -> Any:
    """Return the bounds of a Box as one number if they are equal, else as lists."""
    return ends.flat[0].item() if ends.size and (ends == ends.flat[0]).all() else ends.tolist()


def _box(saved: dict[str, Any]) -> spaces.Box:
    shape, dtype = tuple(saved["shape"]), np.dtype(saved["dtype"])
    if not dtype.name.startswith(_DTYPES):
        raise ValueError(f"its dtype is {dtype}")
    low, high = (np.broadcast_to(np.asarray(saved[end], dtype=dtype), _small(shape)) for end in ("low", "high"))
    return spaces.Box(low.copy(), high.copy(), shape, dtype.type)


def _small(shape: Any) -> Any:
    """Return a shape, or the number of choices, if it is not too large."""
    if math.prod(shape if isinstance(shape, tuple) else (shape,)) > MOST:
        raise ValueError(f"it has more than {MOST} numbers")
    return shape


_KINDS: dict[str, Callable[[dict[str, Any]], spaces.Space]] = {
    "Dict": lambda saved: spaces.Dict({name: space_of(part) for name, part in saved["spaces"].items()}),
    "Box": _box,
    "Discrete": lambda saved: spaces.Discrete(_small(saved["n"]), start=saved["start"]),
    "MultiDiscrete": lambda saved: spaces.MultiDiscrete(saved["nvec"]),
    "MultiBinary": lambda saved: spaces.MultiBinary(
        _small(tuple(saved["n"]) if isinstance(saved["n"], list) else saved["n"])
    ),
}
