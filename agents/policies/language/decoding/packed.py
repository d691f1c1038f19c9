"""Weights in the order in which a CPU's kernel reads them, for the many decode steps between two updates.

A product of few rows with large weights spends most of its time on bringing them into that order. oneDNN keeps them in
it, in a copy, which also joins the layers that read the same input. torch has this for its compiler, under names that
may change: then `can_pack` is false.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any

import torch

LARGE = 2**17  # weights of a product; with fewer, other libraries are as fast
ROWS = {torch.float32: 16, torch.bfloat16: 1}  # of a product, from which on it is faster with packed weights
Linear = tuple[torch.Tensor, torch.Tensor | None]  # weight and bias of a layer


class Packed:
    """A packed copy of the weights and biases of layers that read the same input, one below the other.

    It is made again when one of them has changed; a copy of this object starts without it.
    """

    def __init__(self, layers: Sequence[Linear]) -> None:
        self.layers, self.version = layers, -1
        self.made: tuple[Any, torch.Tensor | None] | None = None

    def forget(self) -> None:
        """Free the copy."""
        self.made = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return W x + b [R, out] of all layers, given x [R, in]."""
        version = sum(part._version for layer in self.layers for part in layer if part is not None)
        if self.made is None or self.version != version:
            weights, biases = zip(*self.layers, strict=True)
            weight = torch.cat([each.detach() for each in weights]) if len(weights) > 1 else weights[0].detach()
            bias = None if biases[0] is None else torch.cat([each.detach() for each in biases])
            self.made, self.version = (pack(weight, len(x)), bias), version
        return product(x, *self.made)

    def __deepcopy__(self, memo: dict[int, Any]) -> Packed:
        return Packed(copy.deepcopy(self.layers, memo))


def may_pack(layers: Sequence[Linear]) -> bool:
    """Whether the products of these layers, which read the same input, become faster."""
    dtype = layers[0][0].dtype
    known = all(
        weight.device.type == "cpu" and weight.dtype is dtype and not weight.is_inference() for weight, _ in layers
    )
    alike = len({bias is None for _, bias in layers}) == 1
    return known and alike and sum(weight.numel() for weight, _ in layers) >= LARGE and can_pack(dtype)


@functools.cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether torch can pack weights of this type here, tried on a small product."""
    if dtype not in ROWS:
        return False
    x, weight, bias = (torch.arange(n, dtype=torch.float32).sin().to(dtype) for n in (4 * 8, 6 * 8, 6))
    x, weight = x.view(4, 8), weight.view(6, 8)
    try:
        with torch.inference_mode():
            made = product(x, pack(weight, 4), bias)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    return torch.allclose(made, torch.nn.functional.linear(x, weight, bias), atol=16 * torch.finfo(dtype).eps)


def pack(weight: torch.Tensor, rows: int) -> Any:
    """Return a copy of a weight [out, in] in the kernel's order, for products with about so many rows."""
    return torch.ops.mkldnn._reorder_linear_weight(weight, rows)


def product(x: torch.Tensor, packed: Any, bias: torch.Tensor | None) -> torch.Tensor:
    """Return W x + b [R, out], given x [R, in] and W packed."""
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
