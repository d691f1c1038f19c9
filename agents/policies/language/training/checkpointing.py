"""Activation checkpointing: the backward pass computes each layer again instead of keeping what is within it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer


def layers_of(part: nn.Module) -> list[nn.Module]:
    """Return the layers of a model of transformers.

    Raises:
        ValueError: if it has none that are marked as layers.
    """
    layers: list[nn.Module] = [each for each in part.modules() if isinstance(each, GradientCheckpointingLayer)]
    if not layers:
        raise ValueError(f"activation_checkpointing has no meaning for {type(part).__name__}: it has no known layers")
    return layers


@contextmanager
def recomputed_layers(
    part: nn.Module, attention: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Iterator[None]:
    """Within the context, layers keep their inputs only, as long as gradients are recorded.

    transformers does the same in training mode alone, which would turn dropout on. Afterwards the model is as before,
    so that decode steps and captured graphs stay valid (`step.Layout`).

    Args:
        part: of the model, with the layers in it.
        attention: makes the context in which the backward pass computes a layer again.
    """
    if not torch.is_grad_enabled():
        yield
        return
    layers = layers_of(part)
    replaced = [vars(layer).get("forward") for layer in layers]
    again = partial(
        checkpoint, use_reentrant=False, preserve_rng_state=False, context_fn=lambda: (nullcontext(), attention())
    )
    try:
        for layer in layers:
            layer.forward = partial(again, layer.forward)
        yield
    finally:
        for layer, own in zip(layers, replaced, strict=True):
            del layer.forward
            if own is not None:
                layer.forward = own
