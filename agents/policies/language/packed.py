"""Weights in the order in which a CPU's kernel reads them, for the many decode steps between two updates.

A product of few rows with large weights spends most of its time on bringing them into that order. oneDNN keeps them in
it, in a copy. torch has this for its compiler, under names that may change: then `can_pack` is false.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch

LARGE = 2**16  # weights of one layer; of fewer, other libraries' products are as fast


class Packed:
    """A packed copy of a weight, made again when the weight has changed; a copy of this object starts without one."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight, self.made, self.version = weight, None, -1

    def forget(self) -> None:
        """Free the copy."""
        self.made = None

    def product(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Return W x + b [R, out], given x [R, in]."""
        if self.made is None or self.version != self.weight._version:
            self.version = self.weight._version
            self.made = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), len(x))
        return _product(x, self.made, bias)

    def __deepcopy__(self, memo: dict[int, Any]) -> Packed:
        return Packed(copy.deepcopy(self.weight, memo))


def may_pack(weight: torch.Tensor) -> bool:
    """Whether products with this weight become faster."""
    known = weight.device.type == "cpu" and weight.dtype is torch.float32 and not weight.is_inference()
    return known and weight.numel() >= LARGE and can_pack()


@functools.cache
def can_pack() -> bool:
    """Whether torch can pack weights here, tried on a small product."""
    x, weight, bias = (torch.arange(n, dtype=torch.float32).sin() for n in (4 * 8, 6 * 8, 6))
    x, weight = x.view(4, 8), weight.view(6, 8)
    try:
        with torch.inference_mode():
            made = _product(x, torch.ops.mkldnn._reorder_linear_weight(weight, 4), bias)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    return torch.allclose(made, torch.nn.functional.linear(x, weight, bias), atol=1e-5)


def _product(x: torch.Tensor, packed: Any, bias: torch.Tensor | None) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
