"""Attention: its kernels on a GPU, masks as models of transformers accept them, and that of a decode step on a CPU.

The latter is two plain products, which with many rows take less time than torch's own kernel. With long prompts, a step
spends most of its time on reading keys and values, each row its own copy of the prompt's. So a group's prompt is read
once, not by each episode. The scores of the beginning and of the rest are made apart and go into one softmax, so the
result is the same.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn
from transformers import AttentionInterface, PreTrainedModel

FULL, SLIDING = "full_attention", "sliding_attention"
ADDED_ON = ("cuda",)  # types of devices whose attention adds its mask to the scores
T = TypeVar("T")
ALIGNMENT = 16  # elements; memory-efficient attention copies masks whose rows begin elsewhere, in every layer
WORTH_IT = 2**20  # numbers that the rows of a layer need not read: fewer take less time than the further products
MANY = 16  # rows, and columns, from which on a decode step on a CPU takes less time as plain products
DECODING = "rlenv_decoding"  # of `_attend` among transformers' kinds of attention
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
def attention_by(name: str, part: Any, present: ContextVar[T], value: T) -> Iterator[None]:
    """Within the context, the layers of a part of a model attend by the function of this name, which asks `present`."""
    config = part.config.get_text_config()
    with one_thread():
        usual, token = config._attn_implementation, present.set(value)
        config._attn_implementation = name
        try:
            yield
        finally:
            config._attn_implementation = usual
            present.reset(token)


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


@dataclass(frozen=True)
class Beginnings:
    """The beginnings that the contexts of R rows share.

    Attributes:
        width: their columns.
        rows: the rows that share each, padded with one of them [G, M].
        place: where each row is among the flattened `rows` [R].
        read: keys and values of the beginnings [G, heads of keys, P, D], by layer, from its first step on.
    """

    width: int
    rows: torch.Tensor
    place: torch.Tensor
    read: dict[nn.Module, list[torch.Tensor]] = field(default_factory=dict)

    @classmethod
    def of(cls, numbers: np.ndarray, widths: np.ndarray) -> Beginnings:
        """Return the beginnings of rows, given the number of each one's and how many tokens it has [R]."""
        _, first, group, counts = np.unique(numbers, return_index=True, return_inverse=True, return_counts=True)
        order = group.argsort(kind="stable")
        within = np.empty_like(group)
        within[order] = np.arange(len(group)) - np.repeat(counts.cumsum() - counts, counts)
        rows = np.repeat(first[:, None], counts.max(), 1)
        rows[group, within] = np.arange(len(group))
        place = group * rows.shape[1] + within
        return cls(int(widths.min()), torch.from_numpy(rows), torch.from_numpy(place))

    @property
    def spared(self) -> int:
        """How many tokens of beginnings the rows need not read."""
        return (len(self.place) - len(self.rows)) * self.width


_present: ContextVar[Beginnings | None] = ContextVar("beginnings")


def decoding_attention(
    part: Any, rows: int, window: int, beginnings: Beginnings | None
) -> AbstractContextManager[None]:
    """Return a context for a decode step on a CPU: attention as plain products, if they are faster.

    Args:
        part: of a model whose attention is known.
        rows: R.
        window: W.
        beginnings: are read once; None if nothing is shared.
    """
    pays = beginnings is not None or min(rows, window) >= MANY
    return attention_by(DECODING, part, _present, beginnings) if pays else nullcontext()


def _attend(
    module: nn.Module, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, **settings: Any
) -> tuple[torch.Tensor, None]:
    """Return the attention of each row's token [R, 1, heads, D], as transformers' functions do.

    Args:
        module: a layer's.
        q: [R, heads, 1, D].
        k: [R, heads of keys, W, D].
        v: likewise.
        mask: which columns each row attends to, bool [R, 1, 1, W].
        settings: `scaling` of the scores, and others.
    """
    shared, scale = _present.get(), settings["scaling"]
    queries = q[:, :, 0].unflatten(1, (k.shape[1], -1))  # heads that share a key are queries of one product
    width = 0 if shared is None else shared.width
    scores = (queries @ k[:, :, width:].transpose(2, 3)).masked_fill_(~mask[..., width:], -torch.inf)
    if shared is None:
        return (scores.mul_(scale).softmax(-1) @ v).flatten(1, 2)[:, None], None
    members = shared.rows.shape[1]
    if module not in shared.read:
        shared.read[module] = [x[:, :, :width].index_select(0, shared.rows[:, 0]) for x in (k, v)]
    k_shared, v_shared = shared.read[module]

    def together(x: torch.Tensor) -> torch.Tensor:
        """Return x [R, heads of keys, F, D] with the rows of a group beside each other [G, heads of keys, M F, D]."""
        return x[shared.rows].transpose(1, 2).flatten(2, 3)

    def apart(x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(2, (members, -1)).transpose(1, 2).flatten(0, 1).index_select(0, shared.place)

    scores = torch.cat([apart(together(queries) @ k_shared.transpose(2, 3)), scores], -1)
    weights = scores.mul_(scale).softmax(-1)
    made = apart(together(weights[..., :width]) @ v_shared) + weights[..., width:] @ v[:, :, width:]
    return made.flatten(1, 2)[:, None], None


AttentionInterface.register(DECODING, _attend)
