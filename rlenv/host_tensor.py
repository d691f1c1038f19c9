"""Tensors that Gymnasium's wrappers can calculate with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class HostTensor(torch.Tensor):
    """A tensor in main memory that gives way to numpy where the two meet.

    `array += tensor` and `np.logical_or(tensor, tensor)` give arrays. Gymnasium's vector wrappers, such as
    `RecordEpisodeStatistics`, do this with rewards and flags; with a plain tensor they fail.
    """

    __array_priority__ = -1

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        """Leave the results of numpy's functions as they are."""
        return array[()] if return_scalar else array


def for_numpy(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same tensor, as a `HostTensor` if it is in main memory."""
    return tensor.as_subclass(HostTensor) if tensor.device.type == "cpu" else tensor
