"""Replies of the environment: tokens after an action that a decoder has not read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from ....core.devices import to_device
from ..models.attention import attention_mask, looks_back
from .kv_cache import SlotCache


@dataclass(frozen=True)
class Unread:
    """Some contexts' tokens before their newest, which a step reads, that are not in the cache yet.

    All contexts end with the last query; the queries of a shorter reply begin with tokens that were read before, whose
    keys and values stay as they are. So no query is beyond the window, also of models whose mask counts columns from
    its end.

    Attributes:
        ids: the tokens [n, Q].
        positions: of them [n, Q].
        rows: of the cache [n].
        cells: those to write: place in `rows`, in Q, and column [3, M].
        window: how many columns to read.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    rows: torch.Tensor
    cells: torch.Tensor
    window: int


def unread_parts(
    tokens: torch.Tensor,
    ends: torch.Tensor,
    slots: torch.Tensor,
    rows: torch.Tensor,
    appended: torch.Tensor,
    at_once: int,
) -> list[Unread]:
    """Return an action and its reply without the last token, of some contexts.

    Args:
        tokens: the contexts [B, L].
        ends: lengths of those to read, on the host [n].
        slots: which to read [n].
        rows: of the cache that hold them without the last action and the reply [n].
        appended: how many tokens each reply has, 1 or more, on the host [n].
        at_once: tokens in a part; limits the memory of their activations.
    """
    device, most = tokens.device, int(appended.max())
    behind = torch.arange(most) - most
    columns = (ends - 1)[:, None] + behind  # [n, Q]
    unread = behind >= -appended[:, None]
    positions = to_device(columns.clamp(min=0), device)
    made = []
    for part in torch.arange(len(ends)).split(max(at_once // most, 1)):
        begin, end = int(part[0]), int(part[-1]) + 1
        places, queries = unread[begin:end].nonzero().unbind(1)
        cells = to_device(torch.stack([places, queries, columns[part][places, queries]]), device)
        at = positions[begin:end]
        ids = tokens[slots[begin:end, None], at]
        made.append(Unread(ids, at, rows[begin:end], cells, int(ends[part].max()) - 1))
    return made


@torch.no_grad()
def read_replies(model: PreTrainedModel, cache: SlotCache, unread: Unread) -> None:
    """Read these tokens in a separate pass; the model needs no head."""
    cache.begin_reading(unread.rows, unread.cells, unread.window)
    model.base_model(
        unread.ids,
        attention_mask=attention_mask(model, *looks_back(unread.positions, unread.window)),
        position_ids=unread.positions,
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
