"""The model that acts: a copy that shares everything but its linear layers, made at the start of each rollout.

On a CPU large weights are packed, and an adapter is merged into the weights that it changes. Where nothing is packed
or merged, the model itself acts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D
from typing_extensions import override

from ..devices import HALVES
from .products import least_rows, may_pack, pack


def acting_copy(model: PreTrainedModel, packs: bool = True) -> PreTrainedModel:
    """Return the model that acts in place of a model, with the weights as they are now.

    A hook may read or change anything, so a model with hooks acts itself.

    Args:
        model: with an adapter or without.
        packs: whether to pack large weights on a CPU.
    """
    return model if any(map(is_changed, model.modules())) else _for_acting(model, packs)


def refresh(model: PreTrainedModel) -> None:
    """Let a copy follow the weights, in place: captured graphs know them by their address."""
    for module in model.modules():
        if isinstance(module, ActingLinear):
            module.refresh()


def _for_acting(module: Any, packs: bool) -> Any:
    """Return a module with acting layers in it; itself, if it has none."""
    if "lora_A" in module._modules or (type(module) is nn.Linear and packs and may_pack(module.weight)):
        return ActingLinear(module, packs)
    parts = {name: part and _for_acting(part, packs) for name, part in module._modules.items()}
    if all(parts[name] is part for name, part in module._modules.items()):
        return module
    made = copy.copy(module)
    made._modules = parts
    return made


class ActingLinear(nn.Module):
    """W x + b of a linear layer with the weights of the last `refresh`; of an adapted one (W + s B A) x + b.

    In 16 bits W + s B A would be rounded, to W while the adapter is small: the policy that acts would not be the one
    that is trained. So there the products stay apart, as in training.

    Args:
        layer: a linear layer, or peft's around one.
        packs: whether to pack large weights on a CPU; done by the first product of so many rows that it pays.
    """

    def __init__(self, layer: Any, packs: bool) -> None:
        super().__init__()
        base = getattr(layer, "base_layer", layer)
        self.bias, self.weight, self._transposed = base.bias, base.weight, isinstance(base, Conv1D)
        self._merged = self._apart = None  # peft's layer, or A, B and s; in tuples, whose items are not registered here
        if base is not layer and base.weight.dtype in HALVES:
            (a,), (b,), (scale,) = (part.values() for part in (layer.lora_A, layer.lora_B, layer.scaling))
            self._apart = a.weight, b.weight, scale
        elif base is not layer:
            self._merged = (layer,)
            self.weight = nn.Parameter(torch.empty_like(base.weight), requires_grad=False)
        self._packs = packs and not self._transposed and may_pack(self.weight)
        self._packed: Callable[..., torch.Tensor] | None = None  # the product with packed weights
        self._rows = least_rows(self.weight.dtype)
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Take the weights as they are now."""
        self._packed = None
        if self._merged is not None:
            from .adapters import merged_weight

            self.weight.copy_(merged_weight(*self._merged))

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's output [..., out], given x [..., in]."""
        packs = self._packs and x.numel() // x.shape[-1] >= self._rows and torch.is_inference_mode_enabled()
        if self._apart is None:
            return self._product(x) if packs else self._linear(x)
        a, b, scale = self._apart
        low = F.linear(x, a)
        return self._product(torch.cat([x, low], -1)) if packs else self._linear(x) + F.linear(low, b) * scale

    def _linear(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight.T if self._transposed else self.weight, self.bias)

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        """Return the product with the packed weights: W x, or [W, s B] [x; A x] if the adapter stays apart."""
        if self._packed is None:
            whole = self.weight.detach()
            if self._apart is not None:
                _, b, scale = self._apart
                whole = torch.cat([whole, b.detach() * scale], 1)
            self._packed = pack(whole)
        return self._packed(x, self.bias)


def is_changed(module: nn.Module) -> bool:
    """Whether a module does more than its class says: it has a hook or a replaced forward method."""
    own = module.__dict__
    return bool(own["_forward_hooks"] or own["_forward_pre_hooks"] or "forward" in own)
