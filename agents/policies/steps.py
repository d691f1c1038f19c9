"""One decode step of a language model: one token of each row, with a `SlotCache`.

The general step goes through the model's own forward pass. For models built like Llama the same is written out, without
the bookkeeping that dominates a small step and with nothing that a captured graph could not replay.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel

from .kv_cache import SlotCache
from .layout import is_changed
from .masks import SLIDING, attention_mask, layer_kinds, visible_by_kind

WRITTEN_OUT = ("llama", "mistral", "qwen2", "qwen3")  # model types
PROJECTIONS = (
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
    "mlp.down_proj",
)  # fmt: skip
MANY_ROWS = 16
PLAIN_ROPE = ("default", "linear", "llama3", "yarn")  # kinds of rotary positions that do not depend on the length read


class Step(Protocol):
    """Reads one token of each row."""

    def __call__(
        self, tokens: torch.Tensor, positions: torch.Tensor, cache: SlotCache, window: int, ragged: bool = True
    ) -> torch.Tensor:
        """Return the logits that follow [R, V].

        Args:
            tokens: int64 [R].
            positions: where they stand in their contexts, int64 [R].
            cache: holds what stands before them, in its first R rows.
            window: columns that are looked at, more than any position.
            ragged: False says that all positions are the window's last.
        """


def make_step(model: PreTrainedModel, max_length: int) -> Step:
    """Return the fastest step for a model."""
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    if config.model_type in WRITTEN_OUT and rope.get("rope_type", "default") in PLAIN_ROPE and _is_plain(model):
        return LlamaStep(model, max_length)
    return GeneralStep(model)


def _is_plain(model: PreTrainedModel) -> bool:
    """Tell whether a model is as it came: without hooks, modules of somebody else's, or adapters in its projections."""
    layers = model.base_model.layers
    for module in model.modules():
        if is_changed(module) or type(module).__module__.split(".")[0] not in ("torch", "transformers"):
            return False
    return all(type(layer.get_submodule(name)) is nn.Linear for layer in layers for name in PROJECTIONS)


class GeneralStep:
    """A step through the forward pass of any model."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model

    def __call__(
        self, tokens: torch.Tensor, positions: torch.Tensor, cache: SlotCache, window: int, ragged: bool = True
    ) -> torch.Tensor:
        """Return the logits that follow [R, V]; see `Step`."""
        cache.begin(positions, window, ragged)
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

        h = x + O softmax(rope(Q n(x)) · rope(K n(x))ᵀ / √D) V n(x)        x' = h + W₃(silu(W₁ n(h)) ∘ W₂ n(h))

    The query heads that share a key are the queries of one attention, so that keys and values are never repeated.
    """

    def __init__(self, model: PreTrainedModel, max_length: int) -> None:
        self.model, self.trunk, self.head = model, model.base_model, model.get_output_embeddings()
        self.max_length = max_length
        self.layers = [_LayerStep(layer) for layer in self.trunk.layers]
        self.kinds = layer_kinds(model)
        self.windowed = SLIDING in self.kinds
        self.rotary: tuple[torch.Tensor, torch.Tensor] | None = None  # cos and ±sin of every position [L, D]

    def __call__(
        self, tokens: torch.Tensor, positions: torch.Tensor, cache: SlotCache, window: int, ragged: bool = True
    ) -> torch.Tensor:
        """Return the logits that follow [R, V]; see `Step`."""
        cache.begin(positions, window, ragged)
        masks: dict[str, torch.Tensor] = {}  # nothing is hidden where all contexts are as long as the window
        if ragged or self.windowed:
            masks = visible_by_kind(self.model, *_looks_back(positions, window))
        x = self.trunk.embed_tokens(tokens)  # [R, D]
        cos, sin = (table[positions][:, None] for table in self._rotary_tables(x))
        for layer, kind, memory in zip(self.layers, self.kinds, cache.layers, strict=True):
            x = layer(x, cos, sin, memory, masks.get(kind))
        return self.head(_norm(self.trunk.norm, x))

    def _rotary_tables(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.rotary is None or self.rotary[0].device != x.device or self.rotary[0].dtype != x.dtype:
            every = torch.arange(self.max_length, device=x.device)[None]
            cos, sin = (table[0] for table in self.trunk.rotary_emb(x, every))
            half = sin.shape[-1] // 2
            self.rotary = cos, torch.cat([-sin[:, :half], sin[:, half:]], 1)
        return self.rotary


class _LayerStep:
    """One of Llama's layers; it holds the weights themselves: looking them up costs as much as a small product."""

    def __init__(self, layer: Any) -> None:
        attention = layer.self_attn
        projections = [layer.get_submodule(name) for name in PROJECTIONS]
        self.q, self.k, self.v, self.o, self.gate, self.up, self.down = ((p.weight, p.bias) for p in projections)
        self.head_dim, self.scaling = attention.head_dim, attention.scaling
        self.head_norms = (attention.q_norm, attention.k_norm) if hasattr(attention, "q_norm") else None
        self.input_norm, self.mlp_norm, self.act = (
            layer.input_layernorm,
            layer.post_attention_layernorm,
            layer.mlp.act_fn,
        )

    def __call__(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, memory: Any, mask: Any) -> torch.Tensor:
        """Return the next hidden states [R, D]; keys and values go to the memory."""
        x = x + self._attend(_norm(self.input_norm, x), cos, sin, memory, mask)
        h = _norm(self.mlp_norm, x)
        return x + F.linear(self.act(F.linear(h, *self.gate)) * F.linear(h, *self.up), *self.down)

    def _attend(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, memory: Any, mask: Any) -> torch.Tensor:
        rows = len(x)
        q, k, v = (F.linear(x, *weights).view(rows, -1, self.head_dim) for weights in (self.q, self.k, self.v))
        if self.head_norms is not None:
            q, k = _norm(self.head_norms[0], q), _norm(self.head_norms[1], k)
        q, k = _rotate(torch.cat([q, k], 1), cos, sin).split((q.shape[1], k.shape[1]), 1)
        keys, values = memory.update(k[:, :, None], v[:, :, None])
        q = q.reshape(rows, keys.shape[1], -1, self.head_dim)  # [R, heads of keys, queries of each, D]
        return F.linear(_attention(q, keys, values, mask, self.scaling).reshape(rows, -1), *self.o)


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
    """Turn each pair (x_i, x_{i + D/2}) by its angle: rotary positions; the first half of `sin` is negated."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


def _attention(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: Any, scale: float) -> torch.Tensor:
    """Return softmax(q kᵀ scale) v [R, H, G, D]; on a CPU, the fused kernel is slow for few queries in many rows."""
    if q.device.type != "cpu" or len(q) < MANY_ROWS:
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=scale)
    flat = [x.flatten(0, 1) for x in (q, keys, values)]
    scores = torch.baddbmm(q.new_zeros(()), flat[0], flat[1].mT, beta=0, alpha=scale)  # [R · H, G, W]
    if mask is not None:
        scores = scores.view(*q.shape[:3], -1).masked_fill(~mask, -torch.inf).flatten(0, 1)
    return torch.bmm(scores.softmax(-1), flat[2]).view_as(q)
