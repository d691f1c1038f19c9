"""A decode step on a GPU, with the choice of tokens, captured once as a graph and replayed.

A small step is limited by kernel launches, so it becomes a single launch. No shape in it depends on the contexts: every
slot has a row, and attention reads a bucket of columns at least as wide as the longest context. The CPU keeps an upper
bound of that length, so it never waits for the GPU. Random numbers are drawn outside, into a buffer at a fixed address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedModel
from typing_extensions import override

from .acting_copy import acting_copy, refresh
from .decoder import Decoder
from .kv_cache import SlotCache
from .seats import Contexts, OwnRows

# Of actions and their log-probabilities [B], given logits [B, V] and numbers as `CapturedDecoder.act`.
Choose = Callable[[torch.Tensor, torch.Tensor | None], tuple[torch.Tensor, torch.Tensor]]
Run = Callable[[], None]
BUCKET = 64  # columns
WARM_UP = 3  # runs before a capture, in which libraries initialize themselves


class Capture:
    """Captured steps for one number of slots, by window and whether they sample, and the tensors that they read.

    It outlives rollouts. One decoder uses it at a time: its `user`.
    """

    def __init__(self, model: PreTrainedModel, choose: Choose, num_slots: int, max_length: int) -> None:
        self.model, self.choose = model, choose
        self.cache = SlotCache(model, num_slots, max_length)
        self.tokens = torch.zeros(num_slots, dtype=torch.int64, device=model.device)
        self.positions = torch.zeros_like(self.tokens)
        precision = torch.promote_types(model.dtype, torch.float32)
        self.outputs = [torch.zeros_like(self.tokens), torch.zeros_like(self.tokens, dtype=precision)]
        self.numbers = torch.zeros_like(self.tokens, dtype=torch.float64)  # of which each chooses a token
        self.runs: dict[tuple[int, bool], Run] = {}
        self.pool = torch.cuda.graph_pool_handle() if model.device.type == "cuda" else None  # memory of all graphs
        self.user: CapturedDecoder | None = None


class Captures:
    """The acting copy of a model, at fixed addresses, and captured steps of it; a copy of this starts without any."""

    def __init__(self) -> None:
        self._layout: list[Any] = []
        self.by_slots: dict[int, Capture] = {}

    def decoder(self, source: PreTrainedModel, choose: Choose, num_slots: int, max_length: int) -> CapturedDecoder:
        """Return a decoder for one rollout; everything is made again when a weight or buffer lies elsewhere."""
        layout: list[Any] = [(id(module), type(module)) for module in source.modules()]
        layout += [(each.data_ptr(), each.dtype) for each in (*source.parameters(), *source.buffers())]
        if self._layout != layout:
            self._layout, self.by_slots, self._model = layout, {}, acting_copy(source)
        else:
            refresh(self._model)
        known = self.by_slots.get(num_slots)
        if known is None or known.cache.max_length < max_length:
            self.by_slots[num_slots] = Capture(self._model, choose, num_slots, max_length)
        return CapturedDecoder(self.by_slots[num_slots], source)

    def __deepcopy__(self, memo: Any) -> Captures:
        return Captures()


class CapturedDecoder(Decoder):
    """Chooses the next token of every slot by replaying a captured step; on a CPU the step simply runs.

    A decoder is old when another one has used its capture since.

    Args:
        capture: of the step.
        source: as for `Decoder`.
    """

    def __init__(self, capture: Capture, source: PreTrainedModel) -> None:
        super().__init__(capture.model, source, capture.cache)
        self.capture = capture
        self._seats = OwnRows(capture.cache)  # on a CPU, too
        self.cut = self.held > 0  # contexts that a step without their slot read in part: they must be read again
        capture.user = self

    @override
    def is_old(self) -> bool:
        return self.capture.user is not self or super().is_old()

    @torch.no_grad()
    def act(self, asked: Contexts, numbers: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the next token of every slot, each chosen by a number, and their log-probabilities [B].

        Without numbers [B], they are the likeliest tokens.
        """
        self.is_new = False
        self.held += 1
        plays = asked.plays
        starts = asked.starts.cpu() | (self.cut & plays)
        self._read_replies(asked, ~starts)
        if len(slots := starts.nonzero()[:, 0]):
            self._prefill(asked, slots, head=False)
            self.cut[slots] = False
        self.capture.tokens.copy_(asked.newest)
        self.capture.positions.copy_(asked.lengths - 1)
        if numbers is not None:
            self.capture.numbers.copy_(numbers)
        window = min(-(-int(self.held[plays].max()) // BUCKET) * BUCKET, self.cache.max_length)
        self.cut |= self.held > window
        if (key := (window, numbers is None)) not in self.capture.runs:
            self.capture.runs[key] = self._captured(*key)
        self.capture.runs[key]()
        actions, log_probs = self.capture.outputs
        return actions.clone(), log_probs.clone()

    def _captured(self, window: int, is_greedy: bool) -> Run:
        capture, newest = self.capture, self._newest
        numbers = None if is_greedy else capture.numbers

        def run() -> None:
            logits = newest(capture.tokens, capture.positions, capture.cache, window)
            for output, made in zip(capture.outputs, capture.choose(logits, numbers), strict=True):
                output.copy_(made)

        if capture.tokens.device.type != "cuda":
            return run
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=capture.pool):
            run()
        return graph.replay
