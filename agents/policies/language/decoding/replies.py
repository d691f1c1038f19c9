"""Replies of the environment: tokens after an action that a decoder has not read."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from ....devices import to_device
from ..models.attention import attention_mask
from .kv_cache import SlotCache


@torch.no_grad()
def read_replies(
    model: PreTrainedModel,
    cache: SlotCache,
    tokens: torch.Tensor,
    ends: torch.Tensor,
    slots: torch.Tensor,
    rows: torch.Tensor,
    appended: torch.Tensor,
    at_once: int,
) -> None:
    """Read an action and its reply without the last token, of some contexts, in one pass if they are not too many.

    All contexts end with the last query; the queries of a shorter reply begin with tokens that were read before, whose
    keys and values stay as they are. So no query is beyond the window, also of models whose mask counts columns from
    its end.

    Args:
        model: the one that acts; it needs no head.
        cache: to write to.
        tokens: the contexts [B, L].
        ends: lengths of those to read, on the host [n].
        slots: which to read [n].
        rows: of the cache that hold them without the last action and the reply [n].
        appended: how many tokens each reply has, 1 or more, on the host [n].
        at_once: tokens of a pass; limits the memory of their activations.
    """
    device, most = tokens.device, int(appended.max())
    behind = torch.arange(most) - most
    columns = (ends - 1)[:, None] + behind  # [n, Q]
    unread = behind >= -appended[:, None]
    for part in torch.arange(len(ends)).split(max(at_once // most, 1)):
        places, queries = unread[part].nonzero().unbind(1)
        cells = to_device(torch.stack([places, queries, columns[part][places, queries]]), device)
        positions = to_device(columns[part].clamp(min=0), device)
        here, window = slice(int(part[0]), int(part[-1]) + 1), int(ends[part].max()) - 1
        cache.begin_reading(rows[here], cells, window)
        model.base_model(
            tokens[slots[here, None], positions],
            attention_mask=attention_mask(model, positions, window),
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
        )
