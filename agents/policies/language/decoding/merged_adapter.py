"""Acting with an adapter as fast as without: the model with its adapter merged in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel

from ..models.adapters import NAME, adapted_layers, without_adapter
from .packed import may_pack, pack, product
from .products import Products
from .step import Step, is_changed, make_step

USUAL_ROWS = 32  # of a decode step, which packing may take into account


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
        self.width = sum(self.sizes)
        self.down, self.up, self.bias = _stacked(parts)

    def __call__(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return each layer's output [R, out], given x [R, in]."""
        made = F.linear(x, self.down, self.bias)
        return torch.addmm(made[:, : self.width], made[:, self.width :], self.up).split(self.sizes, -1)

    def refresh(self) -> None:
        """Copy the weights as they are now, in place: captured graphs know them by their address."""
        for mine, now in zip((self.down, self.up, self.bias), _stacked(self.parts), strict=True):
            if mine is not None and now is not None:
                mine.copy_(now)


class StackedAndPacked:
    """The same on a CPU, as two products with packed weights (see `packed.py`), a small one and a large one:

    u = [A₁; A₂] x        [y₁; y₂] = [W, diag(s B₁, s B₂)] [x; u]
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts, self.sizes = parts, [part.out_features for part in parts]
        self.made: tuple[Any, ...] = ()

    def __call__(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return each layer's output [R, out], given x [R, in]."""
        weight, a, bias = self.made
        return product(torch.cat([x, product(x, a, None)], 1), weight, bias).split(self.sizes, -1)

    @torch.inference_mode()
    def refresh(self) -> None:
        """Pack the weights as they are now."""
        self.made = ()  # freed first
        down, up, bias = _stacked(self.parts)
        width = sum(self.sizes)
        weight, a = torch.cat([down[:width], up.T], 1), down[width:]
        self.made = pack(weight, USUAL_ROWS), pack(a, USUAL_ROWS), None if bias is None else bias[:width].clone()


def _stacked(parts: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return [W₁; W₂; A₁; A₂] [out + ranks, in], diag(s B₁, s B₂) [ranks, out], and the bias [out + ranks], if any."""
    bases, adapted = [_base(part) for part in parts], [part for part in parts if hasattr(part, "r")]
    down = torch.cat([*(base.weight for base in bases), *(part.lora_A[NAME].weight for part in adapted)]).detach()
    ups = [
        part.lora_B[NAME].weight.T * part.scaling[NAME] if part in adapted else down.new_zeros(0, part.out_features)
        for part in parts
    ]
    up = torch.block_diag(*ups).detach()
    if all(base.bias is None for base in bases):
        return down, up, None
    biases = [down.new_zeros(len(base.weight)) if base.bias is None else base.bias for base in bases]
    return down, up, torch.cat([*biases, down.new_zeros(len(up))]).detach()


class Apart:
    """An adapted model whose decode step has the products with W and B A apart, but stacked.

    Costs the memory of the adapted projections, too.

    Args:
        model: the adapted one.
        packs: whether to pack large weights on a CPU.
    """

    def __init__(self, model: PreTrainedModel, packs: bool = True) -> None:
        self.model, self._packs = model, packs
        self._stacks: list[Stacked | StackedAndPacked] = []
        self._sources = [weight for _, layer in adapted_layers(model) for weight in layer.parameters()]
        self._version = -1

    def make_step(self, max_length: int) -> Step:
        """Return the decode step."""
        step = make_step(self.model, max_length, self._products)
        self.refresh()
        return step

    def _products(self, parts: Sequence[Any]) -> Products | Stacked | StackedAndPacked:
        """Return what computes some projections that read the same input."""
        if not any(hasattr(part, "lora_A") for part in parts):
            return Products(parts)
        packs = self._packs and may_pack([(_base(part).weight, _base(part).bias) for part in parts])
        self._stacks.append(StackedAndPacked(parts) if packs else Stacked(parts))
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


def for_acting(model: PreTrainedModel, packs: bool = True) -> Merged | Apart | None:
    """Return what acts in place of a model: with an adapter, a faster form of it; None for the model itself.

    Args:
        model: with an adapter or without.
        packs: whether to pack large weights on a CPU.

    In 16 bits W + s B A rounds to W while the adapter is small: the policy that acts would not be the one that is
    trained. So there the two products stay apart, as in training. A hook may read or change anything.
    """
    if not adapted_layers(model) or any(map(is_changed, model.modules())):
        return None
    return Merged(model) if model.dtype in (torch.float32, torch.float64) else Apart(model, packs)


def _base(part: Any) -> Any:
    """Return a linear layer without its adapter."""
    return getattr(part, "base_layer", part)


def merged_weight(layer: Any) -> torch.Tensor:
    """Return W + s B A in at least float32."""
    weight, a, b = layer.base_layer.weight, layer.lora_A[NAME].weight, layer.lora_B[NAME].weight
    dtype = torch.promote_types(weight.dtype, torch.float32)
    product = (b.to(dtype) @ a.to(dtype)) * layer.scaling[NAME]
    return weight.to(dtype) + (product.T if layer.fan_in_fan_out else product)
