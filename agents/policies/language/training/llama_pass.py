"""The training pass of models with Llama's layers, written out for a CPU, over tokens without rows [M, D]."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from ..decoding.step import SILU, has_plain_layers
from .fused import GatedMlp, RmsNorm, Rotated
from .prefix_sharing import takes_forests

# Maps queries [M, heads, D], keys and values [M, heads of keys, D], and a scale to what the queries see [M, heads, D].
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float], torch.Tensor]
# Classes of torch whose work is written out; all others must be the model type's own.
_TORCH = (nn.Embedding, nn.Linear, nn.ModuleList, nn.RMSNorm, nn.SiLU)


def is_written_out(trunk: Any) -> bool:
    """Whether `llama_pass` computes what this trunk does: usual layers in full precision on a CPU, without windows."""
    config, modules = trunk.config.get_text_config(), list(trunk.modules())
    if not takes_forests(trunk) or not all(_is_usual(module, config.model_type) for module in modules):
        return False
    if not has_plain_layers(trunk):
        return False
    weight, dropout = trunk.embed_tokens.weight, trunk.training and config.attention_dropout
    if weight.device.type != "cpu" or weight.dtype not in _dtypes(modules) or torch.is_autocast_enabled("cpu"):
        return False
    return not dropout and all(map(_has_usual_parts, trunk.layers))


def _is_usual(module: nn.Module, model_type: str) -> bool:
    """Whether a module is of a known class, and has no hook that sees or changes gradients."""
    kind: type[nn.Module] = type(module)
    own = kind.__module__ in (f"transformers.models.{model_type}.modeling_{model_type}", "transformers.activations")
    if isinstance(module, nn.RMSNorm) and (module.weight is None or module.eps is None):
        return False
    return (own or kind in _TORCH) and not (module._backward_hooks or module._backward_pre_hooks)


def _dtypes(modules: list[nn.Module]) -> tuple[torch.dtype, ...]:
    """Return the precisions in which these modules compute what is written out: transformers' norms know float32."""
    in_single = any(hasattr(module, "variance_epsilon") for module in modules)
    return (torch.float32,) if in_single else (torch.float32, torch.float64)


def _has_usual_parts(layer: Any) -> bool:
    """Whether the projections of a layer have biases where they are expected, and its activation is SiLU."""
    attention, mlp = layer.self_attn, layer.mlp
    biases = {part.bias is None for part in (attention.q_proj, attention.k_proj, attention.v_proj)}
    without = all(part.bias is None for part in (mlp.gate_proj, mlp.up_proj, mlp.down_proj))
    return len(biases) == 1 and without and type(mlp.act_fn).__name__ in SILU


def llama_pass(
    trunk: Any, ids: torch.Tensor, positions: torch.Tensor, attend: Attend, chosen: torch.Tensor, recompute: bool
) -> torch.Tensor:
    """Return the last hidden states of some tokens [E, D].

    Args:
        trunk: a model's, without its head.
        ids: of all tokens [M].
        positions: of the tokens in their contexts [M].
        attend: computes attention, between all tokens.
        chosen: the tokens whose states are needed [E].
        recompute: whether the backward pass computes each layer again.
    """
    x = trunk.embed_tokens(ids)
    cos, sin = (table[0, :, None] for table in trunk.rotary_emb(x, positions[None]))  # [M, 1, D]
    half = sin.shape[-1] // 2
    sin = torch.cat([-sin[..., :half], sin[..., half:]], -1)
    again = partial(checkpoint, _layer, use_reentrant=False, preserve_rng_state=False)
    run = again if recompute and torch.is_grad_enabled() else _layer
    for index, layer in enumerate(trunk.layers):
        x = run(layer, x, cos, sin, attend, chosen if index == len(trunk.layers) - 1 else None)
    return _norm(trunk.norm, x)


def _layer(
    layer: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, attend: Attend, chosen: torch.Tensor | None
) -> torch.Tensor:
    """Return the next hidden states [M, D], or those of the chosen tokens."""
    attention, mlp = layer.self_attn, layer.mlp
    projections = attention.q_proj, attention.k_proj, attention.v_proj
    qkv = F.linear(_norm(layer.input_layernorm, x), *_joined(*projections)).unflatten(1, (-1, attention.head_dim))
    keys = attention.k_proj.out_features // attention.head_dim
    queries = qkv.shape[1] - 2 * keys
    qk, v = qkv.split((queries + keys, keys), 1)  # [M, queries + keys, D] and [M, keys, D]
    if hasattr(attention, "q_norm"):
        weights = [attention.q_norm.weight.expand(queries, -1), attention.k_norm.weight.expand(keys, -1)]
        qk = RmsNorm.apply(qk, torch.cat(weights), _epsilon(attention.q_norm))
    q, k = Rotated.apply(qk, cos, sin).split((queries, keys), 1)
    seen = attend(q, k, v, attention.scaling).flatten(1)
    if chosen is not None:
        x, seen = x.index_select(0, chosen), seen.index_select(0, chosen)
    x = torch.addmm(x, seen, attention.o_proj.weight.mT)
    if attention.o_proj.bias is not None:
        x = x + attention.o_proj.bias
    gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
    return GatedMlp.apply(x, _norm(layer.post_attention_layernorm, x), gate_up, mlp.down_proj.weight)


def _joined(*parts: nn.Linear) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return weight and bias of layers that read the same input, one below the other."""
    bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts])
    return torch.cat([part.weight for part in parts]), bias


def _norm(norm: Any, x: torch.Tensor) -> torch.Tensor:
    return RmsNorm.apply(x[:, None], norm.weight[None], _epsilon(norm))[:, 0]


def _epsilon(norm: Any) -> float:
    """Return the ε of a norm of transformers or torch."""
    return norm.variance_epsilon if hasattr(norm, "variance_epsilon") else norm.eps
