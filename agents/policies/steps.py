"""One decode step of a language model: one token of each row, with a `SlotCache`.

The general step goes through the model's own forward pass. For models built like Llama the same is written out, without
the bookkeeping that dominates a small step and with nothing that a captured graph could not replay.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from .kv_cache import SlotCache
from .masks import attention_mask, layer_kinds

WRITTEN_OUT = ("llama", "mistral", "qwen2", "qwen3")  # model types
PLAIN_ROPE = ("default", "linear", "llama3", "yarn")  # kinds of rotary positions that do not depend on the length read


class Step(Protocol):
    """Reads one token of each row."""

    def __call__(self, tokens: torch.Tensor, positions: torch.Tensor, cache: SlotCache, window: int) -> torch.Tensor:
        """Return the logits that follow [R, V].

        Args:
            tokens: int64 [R].
            positions: where they stand in their contexts, int64 [R].
            cache: holds what stands before them, in its first R rows.
            window: columns that are looked at, more than any position.
        """


def make_step(model: PreTrainedModel, max_length: int) -> Step:
    """Return the fastest step for a model."""
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    if config.model_type in WRITTEN_OUT and rope.get("rope_type", "default") in PLAIN_ROPE:
        return LlamaStep(model, max_length)
    return GeneralStep(model)


class GeneralStep:
    """A step through the forward pass of any model."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model

    def __call__(self, tokens: torch.Tensor, positions: torch.Tensor, cache: SlotCache, window: int) -> torch.Tensor:
        """Return the logits that follow [R, V]; see `Step`."""
        cache.begin(positions, window)
        return self.model(
            tokens[:, None],
            attention_mask=attention_mask(self.model, *_looks_back(positions, window)),
            position_ids=positions[:, None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]


class LlamaStep:
    """A step of a model with Llama's layers, on its own weights.

        h = x + O softmax(rope(Q n(x)) · rope(K n(x))ᵀ / √D) V n(x)        x' = h + mlp(n(h))

    The query heads that share a key are the queries of one attention, so that keys and values are never repeated.
    """

    def __init__(self, model: PreTrainedModel, max_length: int) -> None:
        self.model, self.trunk, self.head = model, model.base_model, model.get_output_embeddings()
        self.max_length = max_length
        self.kinds = layer_kinds(model)
        self.rotary: tuple[torch.Tensor, torch.Tensor] | None = None  # cos and sin of every position [L, D]

    def __call__(self, tokens: torch.Tensor, positions: torch.Tensor, cache: SlotCache, window: int) -> torch.Tensor:
        """Return the logits that follow [R, V]; see `Step`."""
        cache.begin(positions, window)
        masks = attention_mask(self.model, *_looks_back(positions, window))
        x = self.trunk.embed_tokens(tokens)  # [R, D]
        cos, sin = (table[positions][:, None] for table in self._rotary_tables(x))
        for layer, kind, memory in zip(self.trunk.layers, self.kinds, cache.layers, strict=True):
            mask = masks[kind] if isinstance(masks, dict) else masks
            x = x + self._attend(layer.self_attn, _norm(layer.input_layernorm, x), cos, sin, memory, mask)
            x = x + layer.mlp(_norm(layer.post_attention_layernorm, x))
        return self.head(_norm(self.trunk.norm, x))

    def _attend(
        self, attention: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, memory: Any, mask: Any
    ) -> torch.Tensor:
        rows, size = len(x), attention.head_dim
        q, k, v = (p(x).view(rows, -1, size) for p in (attention.q_proj, attention.k_proj, attention.v_proj))
        if hasattr(attention, "q_norm"):
            q, k = _norm(attention.q_norm, q), _norm(attention.k_norm, k)
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
        keys, values = memory.update(k[:, :, None], v[:, :, None])
        q = q.view(rows, keys.shape[1], -1, size)  # [R, heads of keys, queries of each, D]
        out = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=attention.scaling)
        return attention.o_proj(out.reshape(rows, -1))

    def _rotary_tables(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.rotary is None or self.rotary[0].device != x.device or self.rotary[0].dtype != x.dtype:
            every = torch.arange(self.max_length, device=x.device)[None]
            cos, sin = self.trunk.rotary_emb(x, every)
            self.rotary = cos[0], sin[0]
        return self.rotary


def _looks_back(positions: torch.Tensor, window: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which columns each row's token sees, bool [R, 1, 1, W], and how far back they lie."""
    distance = (positions[:, None] - torch.arange(window, device=positions.device))[:, None, None]
    return distance >= 0, distance


def _norm(norm: Any, x: torch.Tensor) -> torch.Tensor:
    """Apply an RMSNorm; torch's own kernel does in one what the module does in six, except in double precision."""
    if x.dtype is torch.float64 or not hasattr(norm, "variance_epsilon"):
        return norm(x)
    return F.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn each pair (x_i, x_{i + D/2}) by its angle: rotary positions."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin
