"""Between numpy and tensors: copies to a device, and CPU tensors that Gymnasium's wrappers can compute with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class HostTensor(torch.Tensor):
    """A CPU tensor for which mixed operations with numpy return arrays.

    Gymnasium's vector wrappers, such as `RecordEpisodeStatistics`, compute `array += tensor`,
    `np.logical_or(tensor, tensor)` and `1 - flags`, and write arrays into rewards; with plain tensors these fail.
    """

    __array_priority__ = -1

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        """Return the results of numpy's functions unchanged."""
        return array[()] if return_scalar else array

    def __rsub__(self, other: Any) -> Any:
        """Return other - self; as in numpy, a flag counts as 0 or 1."""
        return other - (self.numpy() if self.dtype is torch.bool else self.as_subclass(torch.Tensor))

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write values, also those of an array."""
        super().__setitem__(index, torch.as_tensor(value))


def for_numpy(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same tensor, as a `HostTensor` if it is on the CPU."""
    return tensor.as_subclass(HostTensor) if tensor.device.type == "cpu" else tensor


def to_device(values: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return an array as a tensor on a device; a GPU reads it by itself, from memory that it can access."""
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
