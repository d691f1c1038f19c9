"""Acting with an adapter as fast as without: the model with its adapter merged in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel

from ..models.adapters import NAME, adapted_layers, without_adapter
from .products import Products
from .step import Step, is_changed, make_step


class Merged:
    """An adapted model as a plain one, W + s B A in place of W; it shares all other weights.

    Its forward pass is as fast as the base's. Costs the memory of the adapted projections.

    Attributes:
        model: the plain one.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = without_adapter(model)
        self._pairs: list[tuple[Any, nn.Parameter]] = []
        for name, layer in adapted_layers(model):
            plain: Any = self.model.get_submodule(name)
            plain.weight = nn.Parameter(torch.empty_like(plain.weight), requires_grad=False)
            self._pairs.append((layer, plain.weight))
        self._sources = [
            each.weight
            for layer, _ in self._pairs
            for each in (layer.base_layer, layer.lora_A[NAME], layer.lora_B[NAME])
        ]
        self._version = -1
        self.refresh()

    def make_step(self, max_length: int) -> Step:
        """Return the decode step."""
        return make_step(self.model, max_length)

    def forget(self) -> None:
        """Let the next `refresh` copy the weights, whether or not torch has counted a change."""
        self._version = -1

    @torch.no_grad()
    def refresh(self) -> None:
        """Follow the adapter, if it has changed: in place, since captured graphs know the weights by their address."""
        version = sum(weight._version for weight in self._sources)
        if version != self._version:
            self._version = version
            for layer, weight in self._pairs:
                weight.copy_(merged_weight(layer))


class Stacked:
    """Projections with the same input and their adapters, as two products in all:

        [h; u] = [W₁; W₂; A₁; A₂] x        [y₁; y₂] = h + diag(s B₁, s B₂) u

    Args:
        parts: linear layers, with peft's layers among them.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts, self.sizes = parts, [part.out_features for part in parts]
        ranks = sum(part.r[NAME] for part in parts if hasattr(part, "r"))
        like, self.width = _base(parts[0]).weight, sum(self.sizes)
        self.down = like.new_zeros(self.width + ranks, like.shape[1])
        self.up = like.new_zeros(ranks, self.width)
        biased = any(_base(part).bias is not None for part in parts)
        self.bias = like.new_zeros(len(self.down)) if biased else None

    def __call__(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return each layer's output [R, out], given x [R, in]."""
        made = F.linear(x, self.down, self.bias)
        return torch.addmm(made[:, : self.width], made[:, self.width :], self.up).split(self.sizes, -1)

    def refresh(self) -> None:
        """Copy the weights as they are now."""
        row, column = self.width, 0
        for part, size in zip(self.parts, self.sizes, strict=True):
            ends = slice(column, column + size)
            self.down[ends] = _base(part).weight
            if self.bias is not None and _base(part).bias is not None:
                self.bias[ends] = _base(part).bias
            if hasattr(part, "r"):
                rank = part.r[NAME]
                self.down[row : row + rank] = part.lora_A[NAME].weight
                self.up[row - self.width : row - self.width + rank, ends] = (
                    part.lora_B[NAME].weight.T * part.scaling[NAME]
                )
                row += rank
            column += size


class Apart:
    """An adapted model whose decode step has the products with W and B A apart, but stacked.

    Costs the memory of the adapted projections, too.

    Attributes:
        model: the adapted one.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._stacks: list[Stacked] = []
        self._sources = [weight for _, layer in adapted_layers(model) for weight in layer.parameters()]
        self._version = -1

    def make_step(self, max_length: int) -> Step:
        """Return the decode step."""
        step = make_step(self.model, max_length, self._products)
        self.refresh()
        return step

    def _products(self, parts: Sequence[Any]) -> Products | Stacked:
        """Return what computes some projections that read the same input."""
        if not any(hasattr(part, "lora_A") for part in parts):
            return Products(parts)
        self._stacks.append(Stacked(parts))
        return self._stacks[-1]

    def forget(self) -> None:
        """Let the next `refresh` copy the weights, whether or not torch has counted a change."""
        self._version = -1

    @torch.no_grad()
    def refresh(self) -> None:
        """Follow the adapter, if it has changed, in place; see `Merged.refresh`."""
        version = sum(weight._version for weight in self._sources)
        if version != self._version:
            self._version = version
            for stack in self._stacks:
                stack.refresh()


def for_acting(model: PreTrainedModel) -> Merged | Apart | None:
    """Return what acts in place of a model: with an adapter, a faster form of it; None for the model itself.

    In 16 bits W + s B A rounds to W while the adapter is small: the policy that acts would not be the one that is
    trained. So there the two products stay apart, as in training. A hook may read or change anything.
    """
    if not adapted_layers(model) or any(map(is_changed, model.modules())):
        return None
    return Merged(model) if model.dtype in (torch.float32, torch.float64) else Apart(model)


def _base(part: Any) -> Any:
    """Return a linear layer without its adapter."""
    return getattr(part, "base_layer", part)


def merged_weight(layer: Any) -> torch.Tensor:
    """Return W + s B A in at least float32."""
    weight, a, b = layer.base_layer.weight, layer.lora_A[NAME].weight, layer.lora_B[NAME].weight
    dtype = torch.promote_types(weight.dtype, torch.float32)
    product = (b.to(dtype) @ a.to(dtype)) * layer.scaling[NAME]
    return weight.to(dtype) + (product.T if layer.fan_in_fan_out else product)
