"""The steps of a rollout: noted for all slots as they are taken, and put into the rows of their episodes once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..devices import to_device
from ..rollout import map_obs

PAID = ("rewards", "appended")  # of a step in which a slot waits, they are added to those of its last action

_MADE_SINGLE = ("float64", "uint16", "uint32", "uint64")  # torch has no index_copy_ of the last three
_IN_NUMPY = {np.dtype(name) for name in _MADE_SINGLE}
_IN_TORCH = {getattr(torch, name) for name in _MADE_SINGLE}


class Steps:
    """Quantities of all steps by name, each where it comes from: arrays on the host, or tensors on their device."""

    def __init__(self) -> None:
        self._noted: dict[str, list[Any]] = {}
        self._places: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def note(self, name: str, values: Any) -> None:
        """Keep a copy of a quantity of a step [B, ...], since the next one may be written into the same memory.

        Observations may be dictionaries.
        """
        self._noted.setdefault(name, []).append(map_obs(_copied, values))

    def place(self, rows: np.ndarray, columns: np.ndarray, waited: np.ndarray) -> None:
        """Say where a step belongs; the arrays are kept.

        Args:
            rows: the episode of each slot, N if it does not count [B].
            columns: how many actions that episode had before [B].
            waited: in which slots it was not an action, bool [B].
        """
        self._places.append((rows, columns, waited))

    def put_together(self, lengths: np.ndarray) -> dict[str, Any]:
        """Return all quantities in the rows of their episodes [N, T, ...], by name, and forget the steps.

        Args:
            lengths: of the episodes [N]; zeros follow.
        """
        count, longest = len(lengths), int(lengths.max())
        rows, columns, waited = map(np.concatenate, zip(*self._places, strict=True))
        nowhere = count * longest
        cells, counts = rows * longest + columns, rows < count
        acted = np.where(counts & ~waited, cells, nowhere)
        paid = np.where(counts & (columns >= waited), cells - waited, nowhere)
        found, some_waited = {}, bool(waited.any())
        for name in list(self._noted):
            adds = some_waited and name in PAID  # else each cell gets one number, and adding takes longer
            flat = _put(self._noted.pop(name), paid if adds else acted, nowhere, adds)
            found[name] = map_obs(lambda x: x[:nowhere].reshape(count, longest, *x.shape[1:]), flat)
        return found


def _put(noted: list[Any], cells: np.ndarray, nowhere: int, adds: bool) -> Any:
    """Return a quantity of all steps in its cells, zeros in those of none [nowhere + 1, ...].

    Args:
        noted: of each step, [B, ...]; given up before the cells are made, since images take much memory.
        cells: of the steps of all slots [steps B].
        nowhere: the cell of those that belong to none.
        adds: whether what comes into one cell is added.
    """
    if isinstance(noted[0], dict):
        return {key: _put([each.pop(key) for each in noted], cells, nowhere, adds) for key in list(noted[0])}
    if isinstance(noted[0], torch.Tensor):
        values = torch.cat(noted)
        noted.clear()
        zeros = values.new_zeros(nowhere + 1, *values.shape[1:])
        return zeros.index_put_((to_device(cells, values.device),), values, accumulate=adds)
    steps = np.concatenate(noted)
    noted.clear()
    array = np.zeros((nowhere + 1, *steps.shape[1:]), steps.dtype)
    if adds:
        np.add.at(array, cells, steps)
    else:
        array[cells] = steps
    return array


def to_single(values: Any) -> Any:
    """Return a tensor or an array, in which double precision and the unsigned numbers beside bytes become single."""
    if isinstance(values, torch.Tensor):
        return values.float() if values.dtype in _IN_TORCH else values
    array = np.asarray(values)
    if array.dtype not in _IN_NUMPY:
        return array
    with np.errstate(over="ignore"):  # as in torch, what is too large becomes infinite
        return array.astype(np.float32)


def _copied(values: Any) -> Any:
    """Return a copy: an array, or a plain tensor, whatever subclass of it the environment pays in."""
    return values.as_subclass(torch.Tensor).clone() if isinstance(values, torch.Tensor) else np.array(values)
