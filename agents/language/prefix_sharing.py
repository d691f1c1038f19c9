"""Attention over contexts that share beginnings, when every shared token is read only once.

All tokens of a batch are the nodes of a forest, in one row. The computation per token (products with weights, norms,
gates) needs only that row. For attention, each context gets a row again: its own tokens as queries, all its
tokens as keys. So no context attends over, or is masked from, the tokens of another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import AttentionInterface, PreTrainedModel

from ..devices import take_rows, to_device
from .attention import SLIDING, added_mask, attention_by, layer_kinds

# Those whose attention sees no more than it is given.
MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3", "gpt2")
ALIKE = 0.6  # of the pairs of the largest context in a call
WORTH_A_CALL = 2**14  # pairs; fewer take less time beside larger contexts than in a separate call
NAME = "rlenv_forest"  # of `_attend` among transformers' kinds of attention


@dataclass(frozen=True)
class Rows:
    """Contexts whose own tokens attend to all their tokens in one call.

    Attributes:
        queries: the node of each own token [C, Q]; any node beyond their ends.
        keys: the node of each token [C, K]; likewise.
        visible: which keys each query attends to, bool [C, 1, Q, K]; None if the queries are the keys, causally.
            In a forest with `added` masks, what is added to the scores of all heads of a key [C, 1, G · Q, K].
    """

    queries: torch.Tensor
    keys: torch.Tensor
    visible: torch.Tensor | None


@dataclass(frozen=True)
class Forest:
    """How the nodes of a row attend to each other.

    Attributes:
        positions: of the nodes in their contexts [1, M].
        parts: the contexts that own all their tokens, and the others; those of about equal size together.
        place: where each node is among the queries of all parts, one after the other [M].
    """

    positions: torch.Tensor
    parts: list[Rows]
    place: torch.Tensor

    def added(self, heads: int, dtype: torch.dtype) -> Forest:
        """Return the same with masks that are made once for all layers, given how many heads share a key."""
        masks = [None if part.visible is None else part.visible.repeat(1, 1, heads, 1) for part in self.parts]
        made = [None if mask is None else added_mask(mask, dtype) for mask in masks]
        return replace(self, parts=[replace(part, visible=mask) for part, mask in zip(self.parts, made, strict=True)])


def takes_forests(model: PreTrainedModel) -> bool:
    """Whether the attention of all layers is known and can be replaced."""
    config = model.config.get_text_config()
    known = config.model_type in MODEL_TYPES and config._attn_implementation == "sdpa"
    return known and SLIDING not in layer_kinds(model)


def parts_of(lengths: torch.Tensor, shared: torch.Tensor) -> list[torch.Tensor]:
    """Return the contexts of each call: first the contexts that share nothing, then the others, both by size.

    A call takes contexts with at least `ALIKE` times the pairs of its largest one, so that little of it is padding, or
    all that are left if they have few.
    """
    pairs, made = (lengths - shared) * lengths, []
    for chosen in (shared == 0, shared > 0):
        left = chosen.nonzero()[:, 0]
        left = left[pairs[left].argsort(descending=True, stable=True)]
        while len(left):
            sizes = pairs[left]
            alike = int((sizes >= ALIKE * sizes[0]).sum())
            count = alike if int(sizes[alike:].sum()) >= WORTH_A_CALL else len(left)
            made.append(left[:count])
            left = left[count:]
    return made


def build_forest(
    chains: torch.Tensor, lengths: torch.Tensor, shared: torch.Tensor, device: torch.device
) -> tuple[torch.Tensor, Forest, torch.Tensor]:
    """Lay out contexts as one row of nodes: each owns the tokens that it does not share with the one before it.

    Args:
        chains: their tokens, sorted [C, L].
        lengths: of the contexts [C].
        shared: how many tokens each shares with the one before it [C].
        device: where they will be read.

    Returns:
        ids [1, M] and the forest, on the device, and the node of each context's tokens [C, L].
    """
    column = torch.arange(chains.shape[1]).expand_as(chains)
    after = column >= shared[:, None]
    owned = after & (column < lengths[:, None])
    owner = torch.arange(len(chains))[:, None].where(after, 0).cummax(0).values  # who added each token [C, L]
    number = owned.flatten().cumsum(0).view_as(chains) - 1
    node = number.gather(0, owner).clamp(min=0)
    place, parts, begun = torch.empty(int(owned.sum()), dtype=torch.int64), [], 0
    for chosen in parts_of(lengths, shared):
        start, width = shared[chosen][:, None], int(lengths[chosen].max())
        reached = start + torch.arange(int((lengths - shared)[chosen].max()))  # columns of the queries [C', Q]
        keys, own = node[chosen, :width], owned[chosen, :width]
        queries = keys.gather(1, reached.clamp(max=width - 1))
        row = torch.arange(len(keys))[:, None] * queries.shape[1]
        place[keys[own]] = (begun + row + column[: len(keys), :width] - start)[own]
        begun += queries.numel()
        visible = None
        if start.any():
            visible = to_device(reached, device)[:, None, :, None] >= torch.arange(width, device=device)
        parts.append(Rows(to_device(queries, device), to_device(keys, device), visible))
    ids, positions, place = (to_device(x, device) for x in (chains[owned][None], column[owned][None], place))
    return ids, Forest(positions, parts, place), node


_present: ContextVar[Forest] = ContextVar("forest")


@contextmanager
def attention_over(forest: Forest, part: Any) -> Iterator[None]:
    """Within the context, the layers of a part of a model attend as the forest says and ignore their mask."""
    config = part.config.get_text_config()
    heads = config.num_attention_heads // (getattr(config, "num_key_value_heads", None) or config.num_attention_heads)
    with attention_by(NAME, part):
        token = _present.set(forest.added(heads, part.dtype))
        try:
            yield
        finally:
            _present.reset(token)


def _attend(module: nn.Module, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, **settings: Any) -> Any:
    """Return the attention of each node over its context [1, M, heads, D], as transformers' functions do.

    Args:
        module: a layer's.
        q: [1, heads, M, D].
        k: [1, heads of keys, M, D].
        v: likewise.
        mask: of the row, which says nothing here.
        settings: `scaling` of the scores, and others.
    """
    forest, scale, outputs = _present.get(), settings["scaling"], []
    q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))
    for part in forest.parts:
        queries, keys, values = (_rows(x, at) for x, at in ((q, part.queries), (k, part.keys), (v, part.keys)))
        if part.visible is None:
            how: dict[str, Any] = {"is_causal": True, "enable_gqa": q.shape[1] != k.shape[1]}
            made = F.scaled_dot_product_attention(queries, keys, values, scale=scale, **how)
        else:  # heads that share a key are queries of one attention, so keys and values are never repeated
            together = queries.unflatten(1, (keys.shape[1], -1)).flatten(2, 3)  # [C, heads of keys, G · Q, D]
            made = F.scaled_dot_product_attention(together, keys, values, attn_mask=part.visible, scale=scale)
        outputs.append(made.reshape(queries.shape).transpose(1, 2).flatten(0, 1))
    return take_rows(torch.cat(outputs), forest.place)[None], None


def _rows(x: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
    """Return x [M, heads, D] at these nodes [C, K] as [C, heads, K, D]."""
    return take_rows(x, nodes.flatten()).unflatten(0, nodes.shape).transpose(1, 2)


AttentionInterface.register(NAME, _attend)
