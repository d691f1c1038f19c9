"""What steps bring, in arrays and tensors [N, T, ...] that grow with the longest episode."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..devices import to_device
from ..rollout import map_obs

FIRST_COLUMNS = 32  # T before it doubles


class Steps:
    """Quantities of the steps of episodes, by name, zeros until they are written; observations may be dictionaries.

    Each is where it comes from: an array on the host, or a tensor on its device.

    Args:
        rows: N.

    Attributes:
        columns: T so far.
    """

    def __init__(self, rows: int) -> None:
        self.rows, self.columns = rows, FIRST_COLUMNS
        self._stored: dict[str, Any] = {}

    def write(self, name: str, cells: tuple[np.ndarray, np.ndarray], values: Any, adds: bool = False) -> None:
        """Write what a step brought [B, ...] to these rows and columns [B], or add it to what is there."""
        if name not in self._stored:
            self._stored[name] = map_obs(lambda x: _zeros(x, self.rows, self.columns), values)
        self._stored[name] = _written(self._stored[name], cells, values, adds)

    def make_room(self, lengths: np.ndarray, longest: int) -> int:
        """Double T if an episode that runs has used it up; return how many more steps fit.

        Args:
            lengths: the steps of each row so far [N].
            longest: the most steps so far of an episode that runs.
        """
        if longest == self.columns:
            self.columns *= 2
            for name, values in self._stored.items():
                self._stored[name] = map_obs(lambda x: _resized(x, lengths, self.columns), values)
        return self.columns - longest

    def take(self, name: str, lengths: np.ndarray) -> Any:
        """Return the first rows, as long as they are, with zeros up to the longest one [rows, T, ...], and forget them.

        Args:
            name: of the quantity.
            lengths: of each of these rows.
        """
        return map_obs(lambda x: _resized(x, lengths, int(lengths.max())), self._stored.pop(name))


def to_single(values: Any) -> Any:
    """Return a tensor or an array, in which double precision becomes single."""
    if isinstance(values, torch.Tensor):
        return values.float() if values.dtype is torch.float64 else values
    array = np.asarray(values)
    if array.dtype != np.float64:
        return array
    with np.errstate(over="ignore"):  # as in torch, what is too large becomes infinite
        return array.astype(np.float32)


def _zeros(like: Any, rows: int, columns: int) -> Any:
    """Return zeros [rows, columns, ...] of the kind of a step's values [B, ...]."""
    shape = (rows, columns, *like.shape[1:])
    if isinstance(like, torch.Tensor):
        return torch.zeros(shape, dtype=like.dtype, device=like.device)
    return np.zeros(shape, like.dtype)


def _resized(values: Any, lengths: np.ndarray, columns: int) -> Any:
    """Return these many steps of each of the first rows of [N, T, ...], with zeros up to this many columns."""
    out = _zeros(values[:, 0], len(lengths), columns)
    for row, length in enumerate(lengths.tolist()):  # padding is not copied, so that it takes no memory
        out[row, :length] = values[row, :length]
    return out


def _written(stored: Any, cells: tuple[np.ndarray, np.ndarray], values: Any, adds: bool) -> Any:
    if isinstance(stored, dict):
        return {key: _written(stored[key], cells, value, adds) for key, value in values.items()}
    at: Any = tuple(to_device(np.stack(cells), stored.device)) if isinstance(stored, torch.Tensor) else cells
    if values.dtype != stored.dtype:  # an environment may pay 0 at first, and 0.5 later
        stored, values = _alike(stored, values)
    stored[at] = stored[at] + values if adds else values
    return stored


def _alike(one: Any, other: Any) -> tuple[Any, Any]:
    """Return two arrays or two tensors in a type that holds both."""
    if isinstance(one, torch.Tensor):
        dtype = torch.promote_types(one.dtype, other.dtype)
        return one.to(dtype), other.to(dtype)
    kind = np.result_type(one, other)
    return one.astype(kind, copy=False), other.astype(kind, copy=False)
