"""One decode step of a language model: it reads one token per row, and replies before it, with a `SlotCache`.

`GeneralStep` is the plain path, the model's forward pass. `LlamaStep` is optional and faster: it computes the same for
models with Llama's layers, without the Python overhead that dominates a small step, and a captured graph can replay it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from typing_extensions import override

from ..models.attention import SLIDING, attention_mask, layer_kinds, looks_back, masks_by_kind
from .kv_cache import SlotCache
from .products import Products, products_for
from .replies import Unread, read_replies

WRITTEN_OUT = ("llama", "mistral", "qwen2", "qwen3")  # model types
PROJECTIONS = (  # those in a row read the same input
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ("self_attn.o_proj",),
    ("mlp.gate_proj", "mlp.up_proj"),
    ("mlp.down_proj",),
)
MANY_ROWS = 16  # from here on, two plain products are faster on a CPU than the fused attention kernel
SILU = ("SiLU", "SiLUActivation")  # classes of torch and of transformers
PLAIN_ROPE = ("default", "linear", "llama3", "yarn")  # kinds of rotary positions that depend on the position only


class Step(Protocol):
    """Reads one token per row."""

    def __call__(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        cache: SlotCache,
        window: int,
        ragged: bool = True,
        unread: Unread | None = None,
    ) -> torch.Tensor:
        """Return the logits after these tokens [R, V].

        Args:
            tokens: int64 [R].
            positions: of the tokens in their contexts, int64 [R].
            cache: its first R rows hold the tokens before them.
            window: how many columns to read, more than any position.
            ragged: False if every position is the window's last.
            unread: tokens of some rows before these, which are read, too.
        """


def make_step(model: PreTrainedModel, max_length: int, products: Callable[..., Any] = products_for) -> Step:
    """Return the fastest step that the model allows as it is now.

    Args:
        model: the one that acts.
        max_length: L, the longest context.
        products: makes what computes the projections of a layer, given some of them; others than `products_for`
            know peft's layers.
    """
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    known = config.model_type in WRITTEN_OUT and rope.get("rope_type", "default") in PLAIN_ROPE
    if known and has_plain_layers(model, adapted=products is not products_for):
        return LlamaStep(model, max_length, products)
    return GeneralStep(model)


def has_plain_layers(model: PreTrainedModel, adapted: bool = False) -> bool:
    """Whether a model has no hooks, no modules of other libraries (except peft's, if `adapted`), and usual layers."""
    known = ("torch", "transformers", "peft")[: 3 if adapted else 2]
    for module in model.modules():
        if is_changed(module) or type(module).__module__.split(".")[0] not in known:
            return False
    layers = model.base_model.layers
    if len(layers) != model.config.get_text_config().num_hidden_layers:  # transformers leaves the others out
        return False
    names = [name for group in PROJECTIONS for name in group]
    parts = [layer.get_submodule(name) for layer in layers for name in names]
    return all(type(getattr(part, "base_layer", part) if adapted else part) is nn.Linear for part in parts)


class GeneralStep(Step):
    """The plain path: the forward pass of any model."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model

    @override
    def __call__(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        cache: SlotCache,
        window: int,
        ragged: bool = True,
        unread: Unread | None = None,
    ) -> torch.Tensor:
        if unread is not None:
            read_replies(self.model, cache, unread)
        cache.begin(positions, window, ragged)
        return self.model(
            tokens[:, None],
            attention_mask=attention_mask(self.model, *looks_back(positions[:, None], window)),
            position_ids=positions[:, None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]


class LlamaStep(Step):
    """The same for a model with Llama's layers, written out on the model's weights.

        h = x + O softmax(rope(Q n(x)) · rope(K n(x))ᵀ / √D) V n(x)        x' = h + W₃(silu(W₁ n(h)) ∘ W₂ n(h))

    Query heads that share a key are the queries of one attention, so keys and values are never repeated.
    """

    def __init__(self, model: PreTrainedModel, max_length: int, products: Callable[..., Any] = products_for) -> None:
        self.model, self.trunk, head = model, model.base_model, model.get_output_embeddings()
        self.head = Products([head]) if type(head) is nn.Linear else None
        self.max_length = max_length
        self.layers = [_LayerStep(layer, products) for layer in self.trunk.layers]
        self.kinds = layer_kinds(model)
        self.windowed = SLIDING in self.kinds
        self.rotary: tuple[torch.Tensor, torch.Tensor] | None = None  # cos and ±sin of every position [L, D]

    @override
    def __call__(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        cache: SlotCache,
        window: int,
        ragged: bool = True,
        unread: Unread | None = None,
    ) -> torch.Tensor:
        cache.begin(positions, window, ragged)
        rows, masks, wide = len(tokens), {}, {}  # masks: none if all contexts are as long as the window
        every = positions
        if unread is not None:
            tokens = torch.cat([tokens, unread.ids.flatten()])
            every = torch.cat([positions, unread.positions.flatten()])
        x = self.trunk.embed_tokens(tokens)  # [R + n · Q, D]
        if ragged or self.windowed:
            masks = masks_by_kind(self.model, *looks_back(positions[:, None], window), x.dtype, added=True)
        if unread is not None:
            wide = masks_by_kind(self.model, *looks_back(unread.positions, unread.window), x.dtype, added=True)
        cos, sin = (table[every][:, None] for table in self._rotary_tables(x))
        for layer, kind, memory in zip(self.layers, self.kinds, cache.layers, strict=True):
            x = layer(x, cos, sin, memory, masks.get(kind), unread, wide.get(kind))
        x = _norm(self.trunk.norm, x[:rows])
        return self.model.get_output_embeddings()(x) if self.head is None else self.head(x)[0]

    def forget(self) -> None:
        """Free packed copies of weights."""
        for products in self._packing():
            products.forget()

    def unpack(self) -> None:
        """Make no packed copies of weights any more."""
        for products in self._packing():
            products.packed = None

    def _packing(self) -> Iterator[Products]:
        if self.head is not None:
            yield self.head
        for layer in self.layers:
            yield from (each for each in (layer.qkv, layer.o, layer.gate_up, layer.down) if isinstance(each, Products))

    def _rotary_tables(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.rotary is None or self.rotary[0].device != x.device or self.rotary[0].dtype != x.dtype:
            every = torch.arange(self.max_length, device=x.device)[None]
            cos, sin = (table[0] for table in self.trunk.rotary_emb(x, every))
            half = sin.shape[-1] // 2
            self.rotary = cos, torch.cat([-sin[:, :half], sin[:, half:]], 1)
        return self.rotary


class _LayerStep:
    """One of Llama's layers, holding the weights directly: attribute look-ups cost as much as a small product."""

    def __init__(self, layer: Any, products: Callable[..., Any]) -> None:
        attention = layer.self_attn
        groups = [[layer.get_submodule(name) for name in group] for group in PROJECTIONS]
        self.qkv, self.o, self.gate_up, self.down = map(products, groups)
        self.head_dim, self.scaling = attention.head_dim, attention.scaling
        self.head_norms = (attention.q_norm, attention.k_norm) if hasattr(attention, "q_norm") else None
        self.input_norm, self.mlp_norm = layer.input_layernorm, layer.post_attention_layernorm
        self.act = layer.mlp.act_fn

    def __call__(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        memory: Any,
        mask: Any,
        unread: Unread | None = None,
        wide: Any = None,
    ) -> torch.Tensor:
        """Return the next hidden states [R + n · Q, D]; writes keys and values to `memory`, the layer's cache."""
        x = x + self._attend(_norm(self.input_norm, x), cos, sin, memory, mask, unread, wide)
        gate, up = self.gate_up(_norm(self.mlp_norm, x))
        return x + self.down(self.act(gate).mul_(up))[0]

    def _attend(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, memory: Any, mask: Any, unread: Any, wide: Any
    ) -> torch.Tensor:
        q, k, v = (made.view(len(x), -1, self.head_dim) for made in self.qkv(x))
        if self.head_norms is not None:
            q, k = _norm(self.head_norms[0], q), _norm(self.head_norms[1], k)
        q, k = rotate(torch.cat([q, k], 1), cos, sin).split((q.shape[1], k.shape[1]), 1)
        rows, late = len(x), []
        if unread is not None:  # before the step, which attends to what is written here
            rows -= unread.ids.numel()
            late = [self._attend_late(q[rows:], k[rows:], v[rows:], memory, unread, wide)]
        keys, values = memory.update(k[:rows, :, None], v[:rows, :, None])
        q = q[:rows].reshape(rows, keys.shape[1], -1, self.head_dim)  # [R, heads of keys, queries of each, D]
        attention = _attention if memory.stem is None else memory.stem.attention
        seen = attention(q, keys, values, mask, self.scaling).reshape(rows, -1)
        return self.o(torch.cat([seen, *late]) if late else seen)[0]

    def _attend_late(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, memory: Any, unread: Unread, mask: Any
    ) -> torch.Tensor:
        """Return what Q queries of each of n rows see [n · Q, heads · D]; a query and its heads are as many queries."""
        q, k, v = (each.unflatten(0, unread.ids.shape).transpose(1, 2) for each in (q, k, v))  # [n, heads, Q, D]
        keys, values = memory.read(unread.rows, unread.cells, unread.window, k, v)
        of_each = q.shape[1] // k.shape[1]
        grouped = q.reshape(len(q), k.shape[1], -1, self.head_dim)  # [n, heads of keys, queries of each · Q, D]
        seen = _attention(grouped, keys, values, mask.repeat(1, 1, of_each, 1), self.scaling)
        return seen.view_as(q).transpose(1, 2).flatten(2).flatten(0, 1)


def _norm(norm: Any, x: torch.Tensor) -> torch.Tensor:
    """Apply an RMSNorm, x w / √(mean x² + ε): a GPU has a kernel for it; on a CPU that one is many operations."""
    if x.dtype is torch.float64 or not hasattr(norm, "variance_epsilon"):
        return norm(x)
    if x.device.type != "cpu" or x.dtype is not torch.float32:
        return F.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)
    mean_square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
    return (x * norm.weight).mul_(mean_square.add_(norm.variance_epsilon).rsqrt_())


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate each pair (x_i, x_{i + D/2}) by its angle (rotary positions); the first half of `sin` is negated."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


def _attention(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: Any, scale: float) -> torch.Tensor:
    """Return softmax(q kᵀ scale + mask) v [R, H, G, D]."""
    if q.device.type != "cpu" or len(q) < MANY_ROWS:
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=scale)
    flat = [x.flatten(0, 1) for x in (q, keys, values)]
    scores = torch.baddbmm(q.new_zeros(()), flat[0], flat[1].mT, beta=0, alpha=scale)  # [R · H, G, W]
    if mask is not None:
        scores = scores.view(*q.shape[:3], -1).add_(mask).flatten(0, 1)
    return torch.bmm(scores.softmax(-1), flat[2]).view_as(q)


def is_changed(module: nn.Module) -> bool:
    """Whether a module does more than its class says: it has a hook or a replaced forward method."""
    own = module.__dict__
    return bool(own["_forward_hooks"] or own["_forward_pre_hooks"] or "forward" in own)


class Layout:
    """What a step relies on besides the values of the weights: where weights and buffers are, and what the modules do.

    In-place changes, such as an optimizer's, do not change it. New storage, precision, device, submodules, hooks and
    parametrizations do, and then a new step must be made.
    """

    def __init__(self, model: nn.Module) -> None:
        self.modules = list(model.modules())
        hooks = ("_forward_hooks", "_forward_pre_hooks")
        self._dicts = [each for module in self.modules for each in (vars(module), *(vars(module)[k] for k in hooks))]
        self._first = self._full(), self._quick()

    def holds(self, thorough: bool) -> bool:
        """Return whether everything is as at the start.

        Args:
            thorough: compare every weight, which takes as long as a decode step of a small model; otherwise only what
                may change in the middle of an episode: hooks, parametrizations and forward methods.
        """
        full, quick = self._first
        return quick == self._quick() and (not thorough or full == self._full())

    def _quick(self) -> tuple[list[type], list[int]]:
        return list(map(type, self.modules)), list(map(len, self._dicts))

    def _full(self) -> list[Any]:
        seen: list[Any] = []
        for module in self.modules:  # the modules' dictionaries: attribute look-ups would double the time
            own = module.__dict__
            seen += map(id, own["_modules"].values())
            for tensors in (own["_parameters"], own["_buffers"]):
                seen += [(x.data_ptr(), x.dtype) for x in tensors.values() if x is not None]
            seen.append(is_changed(module))
        return seen
