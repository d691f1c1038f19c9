"""A KV cache whose slots restart while others run on: one clock for all slots.

Every slot's context is right-aligned to a shared write column, the clock: a context of n tokens owns the last n
columns before it, and a mask hides what lies further left. To restart some slots, the keys and values of their
prompts are copied into the columns just before the clock. When the clock reaches the end of the buffer, the live
columns move back to its start. Shapes never depend on which slots restart.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class SlotLayer(CacheLayerMixin):
    """Keys and values of one layer [B, H, C, D]; the model sees the columns `first` up to the clock.

    Args:
        columns: C, how many columns the buffer has.
    """

    is_sliding = False

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns
        self.first = 0
        self.clock = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate the buffers when the first keys show their shape."""
        batch, heads = key_states.shape[:2]
        self.keys = key_states.new_zeros(batch, heads, self.columns, key_states.shape[-1])
        self.values = value_states.new_zeros(batch, heads, self.columns, value_states.shape[-1])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write at the clock and return the visible columns; the cache moves the clock when all layers have written."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.clock + key_states.shape[-2]
        self.keys[:, :, self.clock : end] = key_states
        self.values[:, :, self.clock : end] = value_states
        return self.keys[:, :, self.first : end], self.values[:, :, self.first : end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of visible columns and their offset."""
        return self.clock - self.first + query_length, 0

    def get_seq_length(self) -> int:
        """Return how many columns the model sees before the next token."""
        return self.clock - self.first

    def get_max_length(self) -> int:
        """Return that the window has no maximum of its own."""
        return -1


class SlotCache(Cache):
    """The layers of `SlotLayer` with their common clock.

    Args:
        num_layers: layers of the model.
        max_length: L, the longest context of a slot; the buffer has room for it and as much again.
    """

    def __init__(self, num_layers: int, max_length: int) -> None:
        self.reach = max(max_length - 1, 1)  # columns that the longest context needs before the clock
        self.columns = self.reach + max(max_length, 32)
        super().__init__(layers=[SlotLayer(self.columns) for _ in range(num_layers)])
        self.clock = self.reach

    def open_window(self, longest: int) -> None:
        """Make the `longest` last contexts columns visible, the one to be written included, for the next update."""
        if self.clock == self.columns:
            self._move_back()
        for layer in self.layers:
            layer.clock, layer.first = self.clock, self.clock + 1 - longest

    def tick(self) -> None:
        """Move the clock on by the token that all layers have written."""
        self.clock += 1

    def restart(self) -> None:
        """Forget every slot."""
        self.clock = self.reach

    def place(self, rows: torch.Tensor, source: Cache, source_rows: torch.Tensor, lengths: torch.Tensor) -> None:
        """Copy prompts into slots, right-aligned to the clock.

        Args:
            rows: the slots [R].
            source: a cache that has read the prompts, left-aligned.
            source_rows: the row of `source` for each slot [R].
            lengths: how many columns of that row count [R], at most the source's width W.
        """
        if self.clock == self.columns:
            self._move_back()
        width = source.get_seq_length()
        column = torch.arange(width, device=lengths.device) - (width - lengths[:, None])  # [R, W]
        column = column.clamp(min=0)[:, None, :, None]
        for layer, read in zip(self.layers, source.layers, strict=True):
            if not layer.is_initialized:
                raise RuntimeError("slots can be restarted only after reserve()")
            for buffer, prompt in ((layer.keys, read.keys), (layer.values, read.values)):
                shifted = prompt[source_rows].take_along_dim(column, dim=2)
                buffer[rows, :, self.clock - width : self.clock] = shifted

    def reserve(self, num_slots: int, source: Cache) -> None:
        """Allocate the buffers for `num_slots` slots with the shapes of a cache that has read something."""
        for layer, read in zip(self.layers, source.layers, strict=True):
            if not layer.is_initialized:
                shape = (num_slots, *read.keys.shape[1:])
                layer.lazy_initialization(
                    read.keys.new_empty(shape), read.values.new_empty((num_slots, *read.values.shape[1:]))
                )

    def _move_back(self) -> None:
        start = self.clock - self.reach
        for layer in self.layers:
            for buffer in (layer.keys, layer.values):
                buffer[:, :, : self.reach] = buffer[:, :, start : self.clock].clone()
        self.clock = self.reach
