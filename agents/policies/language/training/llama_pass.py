"""The training pass of models with Llama's layers, written out for a CPU, over tokens without rows [M, D]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from ..decoding.step import SILU, WRITTEN_OUT, has_plain_layers
from ..models.attention import SLIDING, layer_kinds
from .fused import GatedMlp, RmsNorm, Rotated

# Maps queries [M, heads, D], keys and values [M, heads of keys, D], and a scale to what the queries see [M, heads, D].
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float], torch.Tensor]


def is_written_out(trunk: Any) -> bool:
    """Whether `llama_pass` computes what this trunk does: usual layers in full precision on a CPU, without windows."""
    config, weight = trunk.config.get_text_config(), trunk.get_input_embeddings().weight
    if config.model_type not in WRITTEN_OUT or config._attn_implementation != "sdpa" or SLIDING in layer_kinds(trunk):
        return False
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.float64):
        return False
    mlps = [layer.mlp for layer in trunk.layers]
    usual = all(type(mlp.act_fn).__name__ in SILU and mlp.down_proj.bias is None for mlp in mlps)
    return usual and has_plain_layers(trunk)


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
    for index, layer in enumerate(trunk.layers):
        last = chosen if index == len(trunk.layers) - 1 else None
        arguments = layer, x, cos, sin, attend, last
        again = recompute and torch.is_grad_enabled()
        x = (
            checkpoint(_layer, *arguments, use_reentrant=False, preserve_rng_state=False)
            if again
            else _layer(*arguments)
        )
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
    gate_up, _ = _joined(mlp.gate_proj, mlp.up_proj)
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
