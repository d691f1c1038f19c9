"""Replies of the environment: tokens after an action that a decoder has not read, in one pass into its cache."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from ....core.devices import to_device, to_host
from ..models.attention import attention_mask
from .kv_cache import SlotCache
from .step import looks_back


@torch.no_grad()
def read_replies(
    model: PreTrainedModel,
    cache: SlotCache,
    tokens: torch.Tensor,
    lengths: torch.Tensor,
    slots: torch.Tensor,
    rows: torch.Tensor,
    appended: torch.Tensor,
    at_once: int,
) -> torch.Tensor:
    """Read an action and its reply without the last token, which a step reads, into the rows of some contexts.

    All contexts end with the last query of the pass; the queries of a shorter reply begin with tokens that were read
    before, whose keys and values stay as they are. So no query is beyond the window, also of models whose mask counts
    columns from its end.

    Args:
        model: without its head.
        cache: its rows hold these contexts, without the last action and the reply.
        tokens: the contexts [B, L].
        lengths: of the contexts [B].
        slots: to read [n].
        rows: of the cache [n].
        appended: how many tokens each reply has, 1 or more, on the host [n].
        at_once: tokens in a pass; limits the memory of their activations.

    Returns:
        The lengths of these contexts [n], on the host.
    """
    ends, device, most = to_host(lengths[slots])[0], tokens.device, int(appended.max())
    behind = torch.arange(most) - most
    columns = (ends - 1)[:, None] + behind  # [n, Q]
    unread = behind >= -appended[:, None]
    positions = to_device(columns.clamp(min=0), device)
    for part in torch.arange(len(ends)).split(max(at_once // most, 1)):
        begin, end = int(part[0]), int(part[-1]) + 1
        window = int(ends[part].max()) - 1
        places, queries = unread[begin:end].nonzero().unbind(1)
        cells = to_device(torch.stack([places, queries, columns[part][places, queries]]), device)
        at = positions[begin:end]
        read_tokens(model, cache, tokens[slots[begin:end, None], at], at, rows[begin:end], cells, window)
    return ends


def read_tokens(
    model: PreTrainedModel,
    cache: SlotCache,
    ids: torch.Tensor,
    positions: torch.Tensor,
    rows: torch.Tensor,
    cells: torch.Tensor,
    window: int,
) -> None:
    """Read these tokens [n, Q] at their positions [n, Q]; the others as in `SlotCache.begin_reading`."""
    cache.begin_reading(rows, cells, window)
    model.base_model(
        ids,
        attention_mask=attention_mask(model, *looks_back(positions, window)),
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
    )


def answered_slots(starts: torch.Tensor, appended: torch.Tensor | None) -> torch.Tensor:
    """Return the slots that go on after a reply [n], on the host; arguments as in `Decoder.act`."""
    none = torch.empty(0, dtype=torch.int64)
    return none if appended is None else ((appended > 0) & ~starts.cpu()).nonzero()[:, 0]


def unread_tokens(
    tokens: torch.Tensor, lengths: torch.Tensor, starts: torch.Tensor, appended: torch.Tensor | None
) -> torch.Tensor:
    """Return the last action of each context that goes on, and its reply, right-aligned after -1 [B, 1 + Q].

    Arguments as in `Decoder.act`; other contexts have their newest token here.
    """
    slots = answered_slots(starts, appended)
    if appended is None or len(slots) == 0:
        return tokens.gather(1, lengths[:, None] - 1)
    counts = torch.zeros_like(lengths)
    counts[slots] = appended[slots].to(counts)
    behind = torch.arange(-1 - int(counts.max()), 0, device=tokens.device)
    found = tokens.gather(1, (lengths[:, None] + behind).clamp(min=0))
    return found.where(behind >= -1 - counts[:, None], -1)
