"""Which row of a decoder's cache holds the context of each slot."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from typing_extensions import override

from .kv_cache import SlotCache


class Contexts(NamedTuple):
    """The contexts of all slots at a step of a decoder, and how they go on from those of the last step.

    Attributes:
        tokens: the contexts [B, L].
        lengths: of the contexts [B].
        starts: which contexts do not begin with the last call's, bool [B].
        playing: which slots matter, bool [B]; None for all. The others may get any logits.
        appended: how many tokens the other contexts have beyond the last call's and one more, int [B] on the host; 0 or
            less for none, None for none in all slots.
    """

    tokens: torch.Tensor
    lengths: torch.Tensor
    starts: torch.Tensor
    playing: torch.Tensor | None = None
    appended: torch.Tensor | None = None

    @property
    def newest(self) -> torch.Tensor:
        """The last token of each context [B]."""
        return self.tokens.gather(1, self.lengths[:, None] - 1)[:, 0]

    @property
    def plays(self) -> torch.Tensor:
        """Which slots matter, on the host; all, if nobody plays [B]."""
        everybody = torch.ones(len(self.lengths), dtype=torch.bool)
        return everybody if self.playing is None or not self.playing.any() else self.playing.cpu()


class OwnRows:
    """The seats of an accelerator: each slot has the row of its number.

    Another order would depend on who plays and what was chosen, and the host would have to wait to learn it.

    Args:
        cache: whose rows the slots have.
    """

    def __init__(self, cache: SlotCache) -> None:
        cache.use(cache.num_rows)

    def take(self, asked: Contexts) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the slots to read whole [n], and which slots go on, bool [B]; both on the host."""
        starts = asked.starts.cpu()
        return starts.nonzero()[:, 0], ~starts

    def rows(self, slots: torch.Tensor) -> torch.Tensor:
        """Return the row of each of these slots [n]."""
        return slots

    def by_row(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values of the rows [R], given those of the slots [B]."""
        return values

    def by_slot(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values of the slots [B, ...], given those of the rows [R, ...]; any for a slot without row."""
        return values


class SharedRows(OwnRows):
    """The seats of a CPU: each distinct context of the slots that play has a row, always the first ones.

    So the episodes of a group are computed once as long as they choose the same tokens, and then get copies of the row.

    Args:
        cache: whose rows the slots have.
    """

    def __init__(self, cache: SlotCache) -> None:
        self._cache = cache
        self._row_of_slot = torch.full((cache.num_rows,), -1)  # -1 for none
        self._slot_of_row: torch.Tensor | None = None  # the first slot of each row [R]; None if R = B, in order
        self._alone: torch.Tensor | None = None  # who plays, if no two of them share a row, bool [B]

    @override
    def take(self, asked: Contexts) -> tuple[torch.Tensor, torch.Tensor]:
        """Give the first rows to the distinct contexts of the slots that play.

        Returns:
            The slots to read whole, one for each new context [n], and which slots go on, bool [B].
        """
        playing, lengths, starts = asked.plays, asked.lengths, asked.starts
        if self._alone is not None and torch.equal(playing, self._alone) and not starts.any():
            return torch.empty(0, dtype=torch.int64), playing
        going = playing & ~starts & (self._row_of_slot >= 0)
        keys = self._keys(asked, playing & ~going)
        slots = playing.nonzero()[:, 0].numpy()
        _, first, context = np.unique(keys[slots], return_index=True, return_inverse=True)
        first = slots[first]  # a slot of each context
        held = self._row_of_slot.where(going, -1).numpy()[first]
        rows = _rows_after(held)
        moved = (held >= 0) & (held != rows)
        self._cache.use(len(rows))
        self._cache.copy(torch.from_numpy(held[moved]), torch.from_numpy(rows[moved]), int(lengths.max()))
        self._row_of_slot = torch.full_like(self._row_of_slot, -1)
        self._row_of_slot[slots] = torch.from_numpy(rows[context])
        slot_of_row = first[np.argsort(rows)]
        in_order = np.array_equal(slot_of_row, np.arange(len(starts)))
        self._slot_of_row = None if in_order else torch.from_numpy(slot_of_row)
        self._alone = playing.clone() if len(rows) == len(slots) else None  # the environment's own array may change
        return torch.from_numpy(first[held < 0]), going

    def _keys(self, asked: Contexts, new: torch.Tensor) -> np.ndarray:
        """Return a number for each slot [B]; those of two slots that play are equal only if their contexts are."""
        tokens, lengths, newest, appended = asked.tokens, asked.lengths, asked.newest, asked.appended
        keys = (self._row_of_slot * (tokens.shape[1] + 1) + lengths) * (newest.max() + 1) + newest
        if appended is not None:  # their replies may differ
            keys = keys.where(appended <= 0, torch.arange(len(keys)) - 2 * len(keys))
        if new.any():
            keys[new] = differs(tokens[new], lengths[new]).cumsum(0) - len(keys) - 1  # below 0
        return keys.numpy()

    @override
    def rows(self, slots: torch.Tensor) -> torch.Tensor:
        return self._row_of_slot[slots]

    @override
    def by_row(self, values: torch.Tensor) -> torch.Tensor:
        return values if self._slot_of_row is None else values[self._slot_of_row]

    @override
    def by_slot(self, values: torch.Tensor) -> torch.Tensor:
        return values if self._slot_of_row is None else values[self._row_of_slot]


def differs(contexts: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return whether each context [n, L] of these lengths [n] differs from the one before it, bool [n]."""
    contexts = contexts[:, : int(lengths.max())]
    beyond = torch.arange(contexts.shape[1]) >= lengths[:, None]
    known = contexts.masked_fill(beyond, -1)
    return torch.cat([torch.ones(1, dtype=torch.bool), (known[1:] != known[:-1]).any(1)])


def _rows_after(held: np.ndarray) -> np.ndarray:
    """Return the row of each context, the first C rows [C]: one context of a row stays there, others go to free rows.

    Args:
        held: the row that each context goes on from [C]; -1 for none.
    """
    origins, one = np.unique(held, return_index=True)
    stays = one[(origins >= 0) & (origins < len(held))]
    goes, free = np.ones((2, len(held)), dtype=bool)
    goes[stays] = free[held[stays]] = False
    rows = held.copy()
    rows[goes] = np.flatnonzero(free)
    return rows
