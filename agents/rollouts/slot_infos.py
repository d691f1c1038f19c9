"""Infos of slots, taken out of Gymnasium's columns: one dictionary per slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class SlotInfos(Sequence[dict[str, Any]]):
    """The infos of a step, one dictionary per slot as in stable-baselines3, which are made when they are read.

    Args:
        infos: of a vector environment.
        dones: slots whose episode ended, of which these are the last infos, bool [B].
    """

    def __init__(self, infos: dict[str, Any], dones: np.ndarray) -> None:
        self._infos, self._dones = infos, dones

    def __len__(self) -> int:
        return len(self._dones)

    def __getitem__(self, slot: Any) -> Any:
        if isinstance(slot, slice):
            return [self[each] for each in range(*slot.indices(len(self)))]
        return slot_info(self._infos.get("final_info", self._infos) if self._dones[slot] else self._infos, slot)


def slot_info(infos: dict[str, Any], slot: int) -> dict[str, Any]:
    """Return one slot's part of a vector environment's infos."""
    return {
        key: in_slot(value, slot)
        for key, value in infos.items()
        if not key.startswith("_") and f"_{key}" in infos and infos[f"_{key}"][slot]
    }


def in_slot(column: Any, slot: int) -> Any:
    """Return one slot's value in a column, which is a dictionary of columns or an array."""
    return slot_info(column, slot) if isinstance(column, dict) else column[slot]
