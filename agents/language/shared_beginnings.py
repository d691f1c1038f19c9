"""Attention of a decode step whose contexts share beginnings: a group's prompt is read once, not by each episode.

With long prompts, a step spends most of its time on reading keys and values, each row its own copy of the prompt's. The
scores of the beginning and of the rest are made apart and go into one softmax, so the result is the same.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AttentionInterface

from .attention import attention_by

WORTH_IT = 2**20  # numbers that the rows of a layer need not read: fewer take less time than the further products
NAME = "rlenv_shared_beginnings"  # of `_attend` among transformers' kinds of attention


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


_present: ContextVar[Beginnings] = ContextVar("beginnings")


def attention_with(beginnings: Beginnings | None, part: Any) -> AbstractContextManager[None]:
    """Return a context in which the layers of a part of a model read these beginnings, if any, once."""
    return nullcontext() if beginnings is None else attention_by(NAME, part, _present, beginnings)


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
    shared = _present.get()
    members, width = shared.rows.shape[1], shared.width
    if module not in shared.read:
        shared.read[module] = [x[:, :, :width].index_select(0, shared.rows[:, 0]) for x in (k, v)]
    k_shared, v_shared = shared.read[module]

    def together(x: torch.Tensor) -> torch.Tensor:
        """Return x [R, heads of keys, F, D] with the rows of a group beside each other [G, heads of keys, M F, D]."""
        return x[shared.rows].transpose(1, 2).flatten(2, 3)

    def apart(x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(2, (members, -1)).transpose(1, 2).flatten(0, 1).index_select(0, shared.place)

    queries = q[:, :, 0].unflatten(1, (k.shape[1], -1))  # heads that share a key are queries of one product
    scores = queries @ k[:, :, width:].transpose(2, 3)
    scores = torch.cat(
        [apart(together(queries) @ k_shared.transpose(2, 3)), scores.masked_fill_(~mask[..., width:], -torch.inf)], -1
    )
    weights = scores.mul_(settings["scaling"]).softmax(-1)
    made = apart(together(weights[..., :width]) @ v_shared) + weights[..., width:] @ v[:, :, width:]
    return made.flatten(1, 2)[:, None], None


AttentionInterface.register(NAME, _attend)
