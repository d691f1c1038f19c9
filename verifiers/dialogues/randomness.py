"""Keeps the global random state of other libraries apart from ours."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Randomness:
    """Python's and NumPy's global random state as one game sees it.

    Games of other libraries draw from the global state or reseed it. Each has a state that is swapped in while the
    game runs, so that games that run in turns neither disturb each other nor us.

    Args:
        seed: of the state at the beginning, 0 to 2³¹ - 1.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._states: list[Any] | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Swap the game's state in for a while."""
        modules = _modules()
        outside = [get() for get, _, _ in modules]
        for index, (_, put, seed) in enumerate(modules):
            if self._states is not None and index < len(self._states):
                put(self._states[index])
            else:
                seed(self._seed)
        try:
            yield
        finally:
            self._states = [get() for get, _, _ in modules]
            for (_, put, _), state in zip(modules, outside, strict=True):
                put(state)


def _modules() -> list[tuple[Any, Any, Any]]:
    """Return how to get, put and seed each state; NumPy's only if something has imported it."""
    modules = [(random.getstate, random.setstate, random.seed)]
    if arrays := sys.modules.get("numpy"):
        modules.append((arrays.random.get_state, arrays.random.set_state, arrays.random.seed))
    return modules
