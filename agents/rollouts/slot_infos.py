"""Infos of slots side by side: in Gymnasium's columns, of any kind, and apart again, one dictionary per slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv


class InfosOfAnyKind(VectorEnv):
    """A vector environment whose slots may have infos of different kinds under one name.

    Gymnasium's column has the type of the first slot's info: after a 1, another slot's 0.5 becomes 0, and its None
    stops the environment. Here such a column becomes an array of objects.
    """

    def _add_info(self, vector_infos: dict[str, Any], env_info: dict[str, Any], env_num: int) -> dict[str, Any]:
        for key, value in env_info.items():
            column = vector_infos.get(key)
            if column is None or _fits(column, value):
                super()._add_info(vector_infos, {key: value}, env_num)
                continue
            known = vector_infos[f"_{key}"]
            objects = np.full(self.num_envs, None, dtype=object)
            for slot in np.flatnonzero(known).tolist():
                objects[slot] = _in_slot(column, slot)
            objects[env_num], known[env_num] = value, True
            vector_infos[key] = objects
        return vector_infos


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
        key: _in_slot(value, slot)
        for key, value in infos.items()
        if not key.startswith("_") and f"_{key}" in infos and infos[f"_{key}"][slot]
    }


def _in_slot(column: Any, slot: int) -> Any:
    return slot_info(column, slot) if isinstance(column, dict) else column[slot]


def _fits(column: Any, value: Any) -> bool:
    """Tell whether a column, a dictionary or an array, can hold an info of another slot as it is."""
    if isinstance(column, dict) or isinstance(value, dict):
        return isinstance(column, dict) and isinstance(value, dict)
    if column.dtype == object:
        return True
    is_number = isinstance(value, (bool, int, float, np.generic, np.ndarray))
    return is_number and np.asarray(value).dtype == column.dtype and np.shape(value) == column.shape[1:]
