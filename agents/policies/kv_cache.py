"""A KV cache whose rows are contexts of different lengths, which can be copied, restarted and dropped at any step.

A context of n tokens owns the first n columns of its row, whatever the others hold: a token at position p is written
to column p. Nothing has to be moved when rows restart, and every shape depends on the longest context alone, so that
a decode step can be captured once and replayed.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class SlotLayer(CacheLayerMixin):
    """Keys and values of one layer [B, H, L, D]; a step sees the first `window` columns of the first rows."""

    is_sliding = False

    def __init__(self, num_rows: int, max_length: int) -> None:
        super().__init__()
        self.num_rows, self.max_length = num_rows, max_length
        self.window, self.ragged = 0, True
        self.positions = torch.empty(0, dtype=torch.int64)

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate the buffers when the first keys show their shape."""
        # Zeros, because a masked column counts 0 times what it holds, and 0 times NaN is NaN.
        self.keys, self.values = (
            states.new_zeros(self.num_rows, states.shape[1], self.max_length, states.shape[3])
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write one token a row [R, H, 1, D] at its position; return the columns that the step sees [R, H, W, D]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows, columns = len(key_states), self.positions[:, None, None, None]
        visible = []
        for buffer, states in ((self.keys[:rows], key_states), (self.values[:rows], value_states)):
            if self.ragged:
                buffer.scatter_(2, columns.expand_as(states), states)
            else:
                buffer[:, :, self.window - 1 : self.window] = states
            visible.append(buffer[:, :, : self.window])
        return visible[0], visible[1]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of visible columns and their offset."""
        return self.window, 0

    def get_seq_length(self) -> int:
        """Return how many columns the model sees besides the next token's."""
        return max(self.window - 1, 0)

    def get_max_length(self) -> int:
        """Return how many columns there are."""
        return self.max_length


class SlotCache(Cache):
    """The layers of `SlotLayer`.

    Args:
        num_layers: layers of the model.
        num_rows: B, the most contexts at a time.
        max_length: L, the longest context.
    """

    def __init__(self, num_layers: int, num_rows: int, max_length: int) -> None:
        self.num_rows = num_rows
        super().__init__(layers=[SlotLayer(num_rows, max_length) for _ in range(num_layers)])

    def begin(self, positions: torch.Tensor, window: int, ragged: bool) -> None:
        """Say where the next token of each row stands, int64 [R], and how many columns the step sees.

        Where positions are not `ragged`, all of them are the window's last.
        """
        for layer in self.layers:
            layer.positions, layer.window, layer.ragged = positions, window, ragged

    def copy(self, sources: torch.Tensor, rows: torch.Tensor, width: int) -> None:
        """Copy the first columns of some rows [n] over other rows [n]."""
        for layer in self.layers:
            if layer.is_initialized:
                for buffer in (layer.keys, layer.values):
                    buffer[rows, :, :width] = buffer[sources, :, :width]

    def place(self, rows: torch.Tensor, read: Cache, source_rows: torch.Tensor) -> None:
        """Copy prompts into rows.

        Args:
            rows: where to [n].
            read: a cache that has read the prompts, left-aligned.
            source_rows: the row of `read` for each of them [n].
        """
        width = read.get_seq_length()
        for layer, source in zip(self.layers, read.layers, strict=True):
            if not layer.is_initialized:
                layer.lazy_initialization(source.keys, source.values)
            layer.keys[rows, :, :width] = source.keys[source_rows]
            layer.values[rows, :, :width] = source.values[source_rows]
