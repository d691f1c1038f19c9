"""Acting with an adapter as fast as without: the model with its adapter merged in."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from .adapters import NAME, adapted_layers, without_adapter
from .decode_step import is_changed


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

    @torch.no_grad()
    def refresh(self) -> None:
        """Follow the adapter, if it has changed: in place, since captured graphs know the weights by their address."""
        version = sum(weight._version for weight in self._sources)
        if version != self._version:
            self._version = version
            for layer, weight in self._pairs:
                weight.copy_(merged_weight(layer))


def merge_to_act(model: PreTrainedModel) -> Merged | None:
    """Return the merged model that acts in place of an adapted one; None if the model itself has to act.

    In 16 bits W + s B A rounds to W while the adapter is small: the policy that acts would not be the one that is
    trained. So there the two products stay apart, as in training. A hook may read or change anything.
    """
    if not adapted_layers(model) or model.dtype not in (torch.float32, torch.float64):
        return None
    return None if any(map(is_changed, model.modules())) else Merged(model)


def merged_weight(layer: Any) -> torch.Tensor:
    """Return W + s B A in at least float32."""
    weight, a, b = layer.base_layer.weight, layer.lora_A[NAME].weight, layer.lora_B[NAME].weight
    dtype = torch.promote_types(weight.dtype, torch.float32)
    product = (b.to(dtype) @ a.to(dtype)) * layer.scaling[NAME]
    return weight.to(dtype) + (product.T if layer.fan_in_fan_out else product)
