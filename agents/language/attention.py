"""Attention: its kernels on a GPU, masks as models of transformers accept them, and plain products in decode steps."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, PreTrainedModel

FULL, SLIDING = "full_attention", "sliding_attention"
ADDED_ON = ("cuda",)  # types of devices whose attention adds its mask to the scores
ALIGNMENT = 16  # elements; memory-efficient attention copies masks whose rows begin elsewhere, in every layer
PRODUCTS = "rlenv_products"  # of `_attend` among transformers' kinds of attention
_switching = threading.RLock()


@contextmanager
def without_cudnn(device: torch.device) -> Iterator[None]:
    """Within the context, attention on a GPU is computed by flash or memory-efficient kernels, not by cuDNN's.

    Where torch prefers cuDNN's (on an H100 or H200, also with a mask), it makes a plan for every new shape. Prompts and
    contexts have a new shape almost every time; the other kernels need no plan. A backward pass takes the kernel
    of its forward pass, so it needs no context, unless it computes layers again. The switch is torch's, for the whole
    process: it is put back, so that other code keeps its own choice.
    """
    allowed = torch.backends.cuda.cudnn_sdp_enabled()
    if device.type != "cuda" or not allowed:
        yield
        return
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)


@contextmanager
def one_thread() -> Iterator[None]:
    """Within the context, no other thread switches attention, which the configuration names for all of them."""
    with _switching:
        yield


@contextmanager
def attention_by(name: str, part: Any) -> Iterator[None]:
    """Within the context, the layers of a part of a model attend by the function of this name."""
    config = part.config.get_text_config()
    with one_thread():
        usual, config._attn_implementation = config._attn_implementation, name
        try:
            yield
        finally:
            config._attn_implementation = usual


def layer_kinds(model: PreTrainedModel) -> list[str]:
    """Return the kind of attention of each layer, under transformers' names."""
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    return list(kinds or [SLIDING if getattr(config, "sliding_window", None) else FULL] * config.num_hidden_layers)


class Masks:
    """Attention masks of a model; its settings are read once, which takes longer than making a small mask.

    Args:
        model: a causal language model.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        config = model.config.get_text_config()
        self._kinds = list(dict.fromkeys(layer_kinds(model)))
        self._width = getattr(config, "sliding_window", None) or 0
        self._is_eager, self._dtype = config._attn_implementation == "eager", model.dtype

    def __call__(self, positions: torch.Tensor, window: int) -> Any:
        """Return the mask of tokens that attend to themselves and to earlier columns of a cache [R, 1, Q, W].

        In the form that a model's forward pass takes, or one per kind of layer if the model has several. On a GPU it
        is what is added to the scores, made once here: a boolean mask is turned into it in every layer.

        Args:
            positions: of the tokens, each in the column of its position [R, Q].
            window: W.
        """
        distance = (positions[..., None] - torch.arange(window, device=positions.device))[:, None]
        seen, masks = distance >= 0, {}
        for kind in self._kinds:
            mask = seen & (distance < self._width) if kind == SLIDING else seen
            if mask.device.type in ADDED_ON:
                mask = added_mask(mask, self._dtype)
            elif self._is_eager:
                mask = torch.zeros((), dtype=self._dtype).where(mask, torch.finfo(self._dtype).min)
            masks[kind] = mask
        return masks if len(masks) > 1 else masks[self._kinds[0]]


def added_mask(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return 0 where a mask is true and -inf elsewhere."""
    keys = visible.shape[-1]
    aligned = -(-keys // ALIGNMENT) * ALIGNMENT
    made = visible.new_zeros(*visible.shape[:-1], aligned, dtype=dtype)[..., :keys]
    return made.masked_fill_(~visible, -torch.inf)


def _attend(
    module: nn.Module, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, **settings: Any
) -> tuple[torch.Tensor, None]:
    """Return the attention of each row's token [R, 1, heads, D] by two products, as transformers' functions do.

    Args:
        module: a layer's.
        q: [R, heads, 1, D].
        k: [R, heads of keys, W, D].
        v: likewise.
        mask: which columns each row attends to, bool [R, 1, 1, W].
        settings: `scaling` of the scores, and others.
    """
    queries = q[:, :, 0].unflatten(1, (k.shape[1], -1))  # heads that share a key are queries of one product
    scores = (queries @ k.transpose(2, 3)).masked_fill_(~mask, -torch.inf).mul_(settings["scaling"])
    return (scores.softmax(-1) @ v).flatten(1, 2)[:, None], None


AttentionInterface.register(PRODUCTS, _attend)
