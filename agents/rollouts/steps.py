"""Quantities of steps, in arrays and tensors [N, T, ...] that grow with the longest episode."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..devices import to_device

FIRST_COLUMNS = 32  # T before it doubles


class Cells:
    """Positions at which a step is written, in tensors [N, T, ...] with the first two dimensions flattened.

    Args:
        acted: the position of each slot's action [B].
        paid: the position of the action that the step's reward belongs to [B]: the same array unless slots wait.
    """

    def __init__(self, acted: np.ndarray, paid: np.ndarray) -> None:
        self.acted, self.paid, self.adds = acted, paid, paid is not acted
        self._sent: dict[torch.device, torch.Tensor] = {}  # both [2, B], or [1, B] if they are the same

    def of(self, values: Any, paid: bool) -> Any:
        """Return the positions for an array, or for a tensor on its device; they are sent to each device once."""
        if not isinstance(values, torch.Tensor):
            return self.paid if paid else self.acted
        if values.device not in self._sent:
            both = np.stack((self.acted, self.paid)) if self.adds else self.acted[None]
            self._sent[values.device] = to_device(both, values.device)
        return self._sent[values.device][-1 if paid else 0]


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
        self._stored: dict[str, Any] = {}  # [N T, ...]; of observations in a dictionary, each by its key

    def write(self, name: str, cells: Cells, values: Any, paid: bool = False) -> None:
        """Write a quantity of a step [B, ...]; rewards for earlier actions are added to the ones written before."""
        if isinstance(values, dict):
            for key, value in values.items():
                self.write(f"{name}/{key}", cells, value, paid)
            return
        stored = self._stored.get(name)
        if stored is None:
            stored = self._stored[name] = _zeros(values, self.rows * self.columns)
        elif values.dtype != stored.dtype:  # an environment may pay 0 at first, and 0.5 later
            stored, values = _alike(stored, values)
            self._stored[name] = stored
        at = cells.of(stored, paid)
        stored[at] = stored[at] + values if paid and cells.adds else values

    def make_room(self, lengths: np.ndarray, longest: int) -> int:
        """Double T if an episode that runs has used it up; return how many more steps fit.

        Args:
            lengths: the steps of each row so far [N].
            longest: the most steps so far of an episode that runs.
        """
        if longest == self.columns:
            for name, values in self._stored.items():
                wider = self._resized(values, lengths, 2 * self.columns)
                self._stored[name] = wider.reshape(-1, *values.shape[1:])
            self.columns *= 2
        return self.columns - longest

    def take(self, name: str, lengths: np.ndarray) -> Any:
        """Return the first rows, as long as they are, with zeros up to the longest one [rows, T, ...], and forget them.

        Args:
            name: of the quantity.
            lengths: of each of these rows.
        """
        if name in self._stored:
            return self._resized(self._stored.pop(name), lengths, int(lengths.max()))
        parts = [each.removeprefix(f"{name}/") for each in self._stored if each.startswith(f"{name}/")]
        return {part: self.take(f"{name}/{part}", lengths) for part in parts}

    def _resized(self, values: Any, lengths: np.ndarray, columns: int) -> Any:
        """Return these many steps of each of the first rows, with zeros up to this many columns."""
        kept, out = min(columns, self.columns), _zeros(values, len(lengths), columns)
        found = values.reshape(self.rows, self.columns, *values.shape[1:])[: len(lengths), :kept]
        if isinstance(found, torch.Tensor):
            out[:, :kept] = found
        else:  # padding is not copied, so that it takes no memory
            exists = np.arange(kept) < lengths[:, None]
            np.copyto(out[:, :kept], found, where=exists.reshape(*exists.shape, *(1 for _ in values.shape[1:])))
        return out


def to_single(values: Any) -> Any:
    """Return a tensor or an array, in which double precision becomes single."""
    if isinstance(values, torch.Tensor):
        return values.float() if values.dtype is torch.float64 else values
    array = np.asarray(values)
    if array.dtype != np.float64:
        return array
    with np.errstate(over="ignore"):  # as in torch, what is too large becomes infinite
        return array.astype(np.float32)


def _zeros(like: Any, *rows: int) -> Any:
    """Return zeros [*rows, ...] of the kind of values [B, ...]."""
    shape = (*rows, *like.shape[1:])
    if isinstance(like, torch.Tensor):
        return torch.zeros(shape, dtype=like.dtype, device=like.device)
    return np.zeros(shape, like.dtype)


def _alike(one: Any, other: Any) -> tuple[Any, Any]:
    """Return two arrays or two tensors in a type that holds both."""
    if isinstance(one, torch.Tensor):
        dtype = torch.promote_types(one.dtype, other.dtype)
        return one.to(dtype), other.to(dtype)
    kind = np.result_type(one, other)
    return one.astype(kind, copy=False), other.astype(kind, copy=False)
