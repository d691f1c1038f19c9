"""Spaces in a checkpoint, as JSON: an agent that was trained on an object can then be loaded without it.

Gymnasium writes samples of spaces as JSON, not spaces; stable-baselines3 pickles them, and a pickle executes code.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

MOST = 2**24  # numbers in an observation or action, or choices; a checkpoint may name any
_ARGUMENTS: dict[type[spaces.Space], tuple[str, ...]] = {  # of the constructor, and attributes
    spaces.Box: ("low", "high", "shape", "dtype"),
    spaces.Discrete: ("n", "start"),
    spaces.MultiDiscrete: ("nvec", "start"),
    spaces.MultiBinary: ("n",),
}
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in _ARGUMENTS}


def described(space: spaces.Space) -> dict[str, Any] | None:
    """Return a space of one environment in plain values; None if it is of another kind than `space_of` makes."""
    if isinstance(space, spaces.Dict):
        parts = {name: described(part) for name, part in space.spaces.items()}
        return None if None in parts.values() else {"kind": "Dict", "spaces": parts}
    names = _ARGUMENTS.get(type(space))
    made = {name: _plain(getattr(space, name), type(space) is spaces.Box) for name in names or ()}
    return {"kind": type(space).__name__, **made} if names else None


def space_of(saved: Any) -> spaces.Space:
    """Return the space that `described` returned the values of.

    Raises:
        ValueError: for anything else.
    """
    try:
        if saved["kind"] == "Dict":
            return spaces.Dict({name: space_of(part) for name, part in saved["spaces"].items()})
        kind = _KINDS[saved["kind"]]
        given = {name: saved[name] for name in _ARGUMENTS[kind]}
        if math.prod(np.ravel(given.get("shape", given.get("n", 1))).tolist()) > MOST:
            raise ValueError(f"it has more than {MOST} numbers")
        if kind is spaces.Box:
            given["shape"], dtype = tuple(given["shape"]), np.dtype(given["dtype"])
            if dtype.kind not in "fiub":
                raise ValueError(f"its dtype is {dtype}")
            ends = {end: np.full(given["shape"], given[end], dtype) for end in ("low", "high")}
            given |= ends | {"dtype": dtype.type}
        return kind(**given)
    except (
        ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
    ) as error:  # fmt: skip
        raise ValueError(f"the space {saved!r:.80} in the checkpoint cannot be read: {error!s:.80}") from error


def _plain(value: Any, shorten: bool) -> Any:
    """Return an argument in plain values; an array of equal numbers as one number, if `shorten`."""
    if isinstance(value, np.ndarray):
        return value.flat[0].item() if shorten and value.size and (value == value.flat[0]).all() else value.tolist()
    if isinstance(value, (tuple, list)):
        return list(value)
    return str(value) if isinstance(value, np.dtype) else int(value)
