"""The products of a decode step with the weights of linear layers: packed on a CPU, joined on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .packed import ROWS, Packed, may_pack

JOINED_ON = ("cuda",)  # types of devices on which projections of the same input are one product; a CPU gains nothing


class Products:
    """Linear layers that read the same input."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.layers = [(part.weight, part.bias) for part in parts]
        self.sizes = [part.out_features for part in parts]
        self.packed = Packed(self.layers) if may_pack(self.layers) else None

    def __call__(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return W x + b of each layer [R, out], given x [R, in]."""
        if self.packed is not None and len(x) >= ROWS[x.dtype] and torch.is_inference_mode_enabled():
            return self.packed(x).split(self.sizes, -1)
        return [F.linear(x, weight, bias) for weight, bias in self.layers]

    def forget(self) -> None:
        """Free packed copies of weights, which may have changed since."""
        if self.packed is not None:
            self.packed.forget()


class Joined:
    """The same as one product: afterwards the weights are parts of one tensor, so that changes in place are seen.

    Parameters stay the objects that they are; this takes no memory beyond one projection's while it is made.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self.sizes = [part.out_features for part in parts]
        self.weight = joined([part.weight for part in parts])
        self.bias = None if parts[0].bias is None else joined([part.bias for part in parts])

    def __call__(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return W x + b of each layer [R, out], given x [R, in]."""
        return F.linear(x, self.weight, self.bias).split(self.sizes, -1)


def joined(weights: Sequence[nn.Parameter]) -> torch.Tensor:
    """Return the concatenation of weights [out, ...] and make each a view of its rows, if they are not yet."""
    with torch.inference_mode(False), torch.no_grad():
        first, begin = weights[0].detach(), weights[0].storage_offset()
        rows = [len(weight) for weight in weights]
        if len(weights) == 1:
            return first
        storages = {weight.untyped_storage()._cdata for weight in weights}
        places = [weight.storage_offset() - begin for weight in weights]
        if len(storages) == 1 and places == [sum(rows[:i]) * first[0].numel() for i in range(len(rows))]:
            return first.as_strided((sum(rows), *first.shape[1:]), first.stride(), begin)
        made = torch.cat([weight.detach() for weight in weights])
        for weight, part in zip(weights, made.split(rows), strict=True):
            weight.data = part
        return made


def products_for(parts: Sequence[Any]) -> Products | Joined:
    """Return what computes some plain projections that read the same input."""
    weights = [part.weight for part in parts]
    alike = len({(weight.dtype, weight.device) for weight in weights}) == 1
    alike = alike and len({part.bias is None for part in parts}) == 1
    return Joined(parts) if alike and weights[0].device.type in JOINED_ON else Products(parts)
