"""Steps of a vector environment, one after another, in arrays that grow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Tape:
    """The last steps of all slots, as far back as they are still read.

    Attributes:
        count: of all steps so far.
        length: steps that the arrays have room for.
        parts: what the steps are made of, each [length, B, ...]; see `rows`.
    """

    def __init__(self) -> None:
        self.count, self.length = 0, 64
        self.parts: list[np.ndarray] = []

    def add(self, values: Sequence[np.ndarray], needed: int = 0) -> None:
        """Store a copy of a step, arrays of slots; `needed` is the number of the first step that is still read."""
        if not self.parts:
            self.parts = [np.zeros((self.length, *value.shape), dtype=value.dtype) for value in values]
        if self.count - needed >= self.length:
            self._double()
        row = self.count % self.length
        for part, value in zip(self.parts, values, strict=True):
            part[row] = value
        self.count += 1

    def rows(self, first: int, steps: int) -> np.ndarray:
        """Return where so many steps are in `parts`, from the one with this number on."""
        return np.arange(first, first + steps) % self.length

    def _double(self) -> None:
        kept = np.arange(self.count - self.length, self.count)
        for k, part in enumerate(self.parts):
            self.parts[k] = np.zeros((2 * self.length, *part.shape[1:]), dtype=part.dtype)
            self.parts[k][kept % (2 * self.length)] = part[kept % self.length]
        self.length *= 2
