"""From the host to a device without waiting for it."""

from __future__ import annotations

import numpy as np
import torch


def to_device(values: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return an array as a tensor on a device; a GPU reads it by itself, from memory that it can access."""
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
