"""A KV cache whose rows are contexts of different lengths; rows can be copied, restarted and dropped at any step.

A context of n tokens uses the first n columns of its row: the token at position p is in column p, independent of the
other rows. So nothing moves when rows restart, and shapes depend on the longest context only, so that a decode step can
be captured once and replayed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin
from typing_extensions import override

CACHE = ("cache", "past_key_values")  # names of the argument; transformers before 5.24 has the second one


@functools.cache
def cache_argument(forward: Callable[..., Any]) -> str | None:
    """Return the name under which a model's forward method takes a cache; None if it takes none."""
    arguments = inspect.signature(forward).parameters
    return next((name for name in CACHE if name in arguments), None)


def cached(model: PreTrainedModel, cache: Cache) -> dict[str, Any]:
    """Return the arguments with which a model, or its trunk, reads and writes a cache."""
    name = cache_argument(type(model).forward)
    assert name is not None  # `loading.check_class` refuses others
    return {name: cache, "use_cache": True}


class SlotLayer(CacheLayerMixin):
    """Keys and values of one layer [B, H, L, D]; a step reads the first `window` columns of the first rows."""

    is_sliding = False

    def __init__(self, num_rows: int, max_length: int) -> None:
        super().__init__()
        self.num_rows, self.max_length = num_rows, max_length
        self.used = 0  # how many first rows are written and read
        self.window = 0  # this and the next three are set before each pass; see `SlotCache._begin`
        self.rows: Any
        self.cells: tuple[Any, Any]
        self.tokens: tuple[Any, Any]

    @override
    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys, self.values = (
            states.new_empty(self.num_rows, states.shape[1], self.max_length, states.shape[3])
            for states in (key_states, value_states)
        )
        self.is_initialized = True
        self.clear(0)

    def clear(self, start: int) -> None:
        """Write zeros from this row on: attention multiplies masked columns by 0, and 0 times NaN is NaN."""
        self.keys[start : self.used] = 0
        self.values[start : self.used] = 0

    @override
    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new tokens among these [n, H, Q, D]; return the window of their rows [n, H, W, D]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        (rows, columns), (places, queries) = self.cells, self.tokens
        for buffer, states in ((self.keys, key_states), (self.values, value_states)):
            buffer[rows, :, columns] = states[places, :, queries]
        return self.keys[self.rows, :, : self.window], self.values[self.rows, :, : self.window]

    @override
    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.window, 0

    @override
    def get_seq_length(self) -> int:
        return max(self.window - 1, 0)

    @override
    def get_max_length(self) -> int:
        return self.max_length


class SlotCache(Cache):
    """A `SlotLayer` for each layer of the model.

    Args:
        model: whose keys and values it holds.
        num_rows: B, the largest number of contexts.
        max_length: L, the longest context.
    """

    def __init__(self, model: PreTrainedModel, num_rows: int, max_length: int) -> None:
        self.num_rows, self.max_length = num_rows, max_length
        layers = model.config.get_text_config().num_hidden_layers
        super().__init__(layers=[SlotLayer(num_rows, max_length) for _ in range(layers)])

    def use(self, rows: int) -> None:
        """Set how many first rows are used, at least; memory of the others is not touched, so the host spares it."""
        for layer in self.layers:
            used, layer.used = layer.used, max(rows, layer.used)
            if layer.is_initialized and layer.used > used:
                layer.clear(used)

    def begin(self, positions: torch.Tensor, window: int) -> None:
        """Set the position of each row's next token, int64 [R], and how many columns the step reads."""
        rows = torch.arange(len(positions), device=positions.device)
        self._begin(window, slice(len(rows)), (rows, positions), (slice(None), 0))

    def begin_reading(self, rows: torch.Tensor, cells: torch.Tensor, window: int) -> None:
        """Prepare for a pass over Q tokens of each of some contexts.

        Args:
            rows: of these contexts [n].
            cells: the tokens to write, which were not read before: place in `rows`, in Q, and column [3, M].
            window: how many columns the pass reads.
        """
        places, queries, columns = cells
        self._begin(window, rows, (rows[places], columns), (places, queries))

    def _begin(self, window: int, rows: Any, cells: tuple[Any, Any], tokens: tuple[Any, Any]) -> None:
        """Set the rows to read, the cells to write, row and column, and the tokens for them, place in n and in Q."""
        for layer in self.layers:
            layer.window, layer.rows, layer.cells, layer.tokens = window, rows, cells, tokens

    def copy(self, sources: torch.Tensor, rows: torch.Tensor, width: int) -> None:
        """Copy the first columns of rows `sources` [n] to `rows` [n]."""
        pairs = list(zip(sources.tolist(), rows.tolist(), strict=True))
        for layer in self.layers:
            if layer.is_initialized:
                for buffer in (layer.keys, layer.values):
                    columns = buffer[:, :, :width]
                    for source, row in pairs:  # by an index of rows, long contexts take ten times as long
                        columns[row].copy_(columns[source])

    def place(self, rows: torch.Tensor, read: Cache, source_rows: torch.Tensor) -> None:
        """Copy prompts into rows.

        Args:
            rows: the destinations [n].
            read: a cache with the prompts, left-aligned.
            source_rows: the row of `read` for each destination [n].
        """
        width = read.get_seq_length()
        for layer, source in zip(self.layers, read.layers, strict=True):
            if not layer.is_initialized:
                layer.lazy_initialization(source.keys, source.values)
            layer.keys[rows, :, :width] = source.keys[source_rows]
            layer.values[rows, :, :width] = source.values[source_rows]
