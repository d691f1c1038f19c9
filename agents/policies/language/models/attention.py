"""Attention: which kernels compute it on a GPU, and masks in the form that models of transformers accept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel

FULL, SLIDING = "full_attention", "sliding_attention"
ADDED_ON = ("cuda",)  # types of devices whose attention adds its mask to the scores
ALIGNMENT = 16  # elements; memory-efficient attention copies masks whose rows begin elsewhere, in every layer


@contextmanager
def without_cudnn(device: torch.device) -> Iterator[None]:
    """Within the context, attention on a GPU is computed by flash or memory-efficient kernels, not by cuDNN's.

    Where torch prefers cuDNN's (on an H100 or H200, also with a mask), it makes a plan for every new shape. Prompts and
    rows of trees have a new shape almost every time; the other kernels need no plan. A backward pass takes the kernel
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


def layer_kinds(model: PreTrainedModel) -> list[str]:
    """Return the kind of attention of each layer, under transformers' names."""
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    return list(kinds or [SLIDING if getattr(config, "sliding_window", None) else FULL] * config.num_hidden_layers)


def visible_by_kind(model: PreTrainedModel, visible: torch.Tensor, distance: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the keys that each kind of layer attends to, bool [R, 1, Q, K].

    Args:
        model: a causal language model.
        visible: which keys (last axis) each query may attend to, bool [R, 1, Q, K].
        distance: position of the query minus position of the key [R, 1, Q, K].
    """
    config = model.config.get_text_config()
    kinds = dict.fromkeys(layer_kinds(model))
    return {kind: visible & (distance < config.sliding_window) if kind == SLIDING else visible for kind in kinds}


def looks_back(positions: torch.Tensor, window: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which columns tokens at positions [R, Q] attend to, bool [R, 1, Q, W], and their distance from them."""
    distance = (positions[..., None] - torch.arange(window, device=positions.device))[:, None]
    return distance >= 0, distance


def masks_by_kind(
    model: PreTrainedModel, visible: torch.Tensor, distance: torch.Tensor, dtype: torch.dtype, added: bool = False
) -> dict[str, torch.Tensor]:
    """Return the mask of each kind of layer, in the form that the device's attention works with [R, 1, Q, K].

    On a GPU that is what is added to the scores, made once here: a boolean mask is turned into it in every layer. On a
    CPU it is the boolean one, unless what is `added` is asked for. The other arguments are those of `visible_by_kind`
    and the precision of the scores.
    """
    masks = visible_by_kind(model, visible, distance)
    if added or visible.device.type in ADDED_ON:
        masks = {kind: added_mask(mask, dtype) for kind, mask in masks.items()}
    return masks


def added_mask(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return 0 where a mask is true and -inf elsewhere."""
    keys = visible.shape[-1]
    aligned = -(-keys // ALIGNMENT) * ALIGNMENT
    made = visible.new_zeros(*visible.shape[:-1], aligned, dtype=dtype)[..., :keys]
    return made.masked_fill_(~visible, -torch.inf)


def attention_mask(
    model: PreTrainedModel, visible: torch.Tensor, distance: torch.Tensor
) -> torch.Tensor | dict[str, torch.Tensor]:
    """Return the mask for a model's forward pass, or one per kind of layer if the model has several.

    Arguments as in `visible_by_kind`.
    """
    masks = masks_by_kind(model, visible, distance, model.dtype)
    adds = model.config.get_text_config()._attn_implementation == "eager"
    if adds and visible.device.type not in ADDED_ON:
        zero = torch.zeros((), dtype=model.dtype, device=visible.device)
        masks = {kind: zero.where(mask, torch.finfo(model.dtype).min) for kind, mask in masks.items()}
    return masks if len(masks) > 1 else next(iter(masks.values()))
