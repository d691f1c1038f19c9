"""Between host and device: every copy to the host waits for the device, so values are sent together, and rarely.

On the CPU nothing is copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

HALVES = (torch.bfloat16, torch.float16)


def widest(device: torch.device) -> torch.dtype:
    """Return double precision, or single on Apple's device, which has no other."""
    return torch.float32 if device.type == "mps" else torch.float64


def to_device(values: Any, device: torch.device) -> torch.Tensor:
    """Return an array or a tensor on a device; one of the host without waiting, from memory that a GPU can read."""
    tensor = torch.as_tensor(values)
    tensor = tensor.to(widest(device)) if tensor.dtype is torch.float64 else tensor
    sent = tensor.pin_memory() if device.type == "cuda" and tensor.device.type == "cpu" else tensor
    return sent.to(device, non_blocking=sent is not tensor)


def to_host(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Return tensors on the host, copied all at once; on Apple's device, which shares the host's memory, one by one.

    On the way they are in double precision, which is exact for the values copied here: numbers of up to 64 bits, and
    integers below 2^53.
    """
    there = [tensor for tensor in tensors if tensor.device.type != "cpu"]
    if not there:
        return list(tensors)
    if there[0].device.type == "mps":
        return [tensor.detach().cpu() for tensor in tensors]
    packed = torch.cat([tensor.detach().flatten().double() for tensor in there]).cpu()
    parts = iter(packed.split([tensor.numel() for tensor in there]))
    return [x if x.device.type == "cpu" else next(parts).view(x.shape).to(x.dtype) for x in tensors]


def take_rows(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return values[index] [M, ...]; its gradient is deterministic, with any number of threads.

    On the CPU, the gradient of plain indexing adds up what belongs to one row in the order in which threads come by;
    on a GPU, that of `index_select` does.
    """
    return values.index_select(0, index) if values.device.type == "cpu" else values[index]


def to_floats(metrics: Sequence[Mapping[str, torch.Tensor | float]]) -> list[dict[str, float]]:
    """Return several dictionaries of numbers as plain floats, read in one copy."""
    figures = [_number(value) for each in metrics for value in each.values()]
    read = iter(to_host(*figures)) if figures else iter(())
    return [{name: float(next(read)) for name in each} for each in metrics]


def _number(value: torch.Tensor | float) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float64)
