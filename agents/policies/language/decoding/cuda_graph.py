"""Optional fast path on a GPU: a whole decode step, with the choice of tokens, captured once as a graph and replayed.

A small step is limited by kernel launches, so it becomes a single launch. No shape in it depends on the contexts: every
slot has a row, and attention reads a bucket of columns at least as wide as the longest context. The CPU keeps an upper
bound of that length, so it never waits for the GPU. What is random is drawn outside, into a buffer at a fixed address.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from transformers import PreTrainedModel
from typing_extensions import override

from ....core.devices import to_device, to_host
from ...choosing import Source
from .decoder import PREFILL, Choose, Decoder, newest_tokens
from .kv_cache import SlotCache
from .replies import answered_slots, read_replies, unread_parts
from .step import Step

Run = Callable[[], None]
BUCKET = 64  # columns
WARM_UP = 3  # runs before a capture, in which libraries initialize themselves


class Capture:
    """Captured steps for one number of slots, by window and what they sample with, and the buffers that they read.

    It outlives rollouts but not the storage of the weights. One decoder uses it at a time: its `user`.
    """

    def __init__(self, model: PreTrainedModel, cache: SlotCache, num_slots: int) -> None:
        self.cache, self.model = cache, model
        self.precision = torch.promote_types(model.dtype, torch.float32)
        self.tokens = torch.zeros(num_slots, dtype=torch.int64, device=model.device)
        self.positions = torch.zeros_like(self.tokens)
        self.runs: dict[tuple[int, int], tuple[Run, list[torch.Tensor]]] = {}
        self.pool = torch.cuda.graph_pool_handle() if model.device.type == "cuda" else None  # memory of all graphs
        self.user: CapturedDecoder | None = None

    @cached_property
    def numbers(self) -> torch.Tensor:
        """What a step samples with, in [0, 1) [B]; see `sample_categorical`."""
        return torch.zeros(len(self.tokens), dtype=torch.float64, device=self.tokens.device)

    @cached_property
    def noise(self) -> torch.Tensor:
        """What a step with a generator samples with, drawn before it [B, V]; so no generator belongs to a graph."""
        shape = len(self.tokens), self.model.config.get_text_config().vocab_size
        return torch.empty(shape, dtype=self.precision, device=self.tokens.device)


class Captures(dict[int, Capture]):
    """The captures of a policy by number of slots; a copy of the policy starts without any."""

    def __deepcopy__(self, memo: Any) -> Captures:
        return Captures()


class CapturedDecoder(Decoder):
    """Chooses the next token of every slot by replaying a captured step; on a CPU the step simply runs.

    Decoders with the same number of slots share a `Capture`. A decoder that finds that another one has used it since
    is stale and reads all its contexts again.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        step: Step,
        choose: Choose,
        num_slots: int,
        max_length: int,
        captures: Captures,
    ) -> None:
        super().__init__(model, step, choose, num_slots, max_length)
        self.max_length = max_length
        if num_slots not in captures:
            captures[num_slots] = Capture(model, self.cache, num_slots)
        self.capture = captures[num_slots]
        self.cache = self.capture.cache
        self.held = torch.zeros(num_slots, dtype=torch.int64)  # length of each context, on the host, or more

    @override
    def is_stale(self) -> bool:
        shared_since = self.capture.user is not self
        self.capture.user = self
        return super().is_stale() or shared_since

    @override
    @torch.no_grad()
    def act(
        self,
        tokens: torch.Tensor,
        lengths: torch.Tensor,
        starts: torch.Tensor,
        playing: torch.Tensor | None,
        deterministic: bool,
        source: Source,
        appended: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.held += 1
        answered = answered_slots(starts, appended)
        if len(answered):
            assert appended is not None
            there = to_device(answered, tokens.device)
            self.held[answered] = ends = to_host(lengths[there])[0]
            for part in unread_parts(tokens, ends, there, there, appended[answered], PREFILL):
                read_replies(self.model, self.cache, part)
        slots = starts.cpu().nonzero()[:, 0]
        if len(slots):
            there = to_device(slots, tokens.device)
            self.held[slots], _ = self._prefill(tokens, lengths, there, there, head=False)
        self.capture.tokens.copy_(newest_tokens(tokens, lengths))
        self.capture.positions.copy_(lengths - 1)
        sampled_with = None if deterministic else self._draw(source)
        held = self.held if playing is None or not playing.any() else self.held[playing.cpu()]
        window = min(-(-int(held.max()) // BUCKET) * BUCKET, self.max_length)
        run, outputs = self._captured_step(window, sampled_with)
        run()
        actions, log_probs = (output.clone() for output in outputs)
        return actions, log_probs

    def _draw(self, source: Source) -> torch.Tensor:
        """Bring what the step samples with to the place that it reads; return this place."""
        if isinstance(source, torch.Tensor):
            return self.capture.numbers.copy_(source)
        return self.capture.noise.exponential_(generator=source)

    def _captured_step(self, window: int, sampled_with: torch.Tensor | None) -> tuple[Run, list[torch.Tensor]]:
        """Return a function that runs the step, and the tensors that it writes its results to."""
        key = window, 0 if sampled_with is None else sampled_with.dim()
        if key not in self.capture.runs:
            self.capture.runs[key] = self._make_run(window, sampled_with)
        return self.capture.runs[key]

    def _make_run(self, window: int, sampled_with: torch.Tensor | None) -> tuple[Run, list[torch.Tensor]]:
        capture, step, choose = self.capture, self.step, self.choose
        outputs = [torch.zeros_like(capture.tokens), torch.zeros_like(capture.tokens, dtype=capture.precision)]

        def run() -> None:
            logits = step(capture.tokens, capture.positions, capture.cache, window, ragged=True)
            for output, made in zip(outputs, choose(logits, sampled_with is None, sampled_with), strict=True):
                output.copy_(made)

        if capture.tokens.device.type != "cuda":
            return run, outputs
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=capture.pool):
            run()
        return graph.replay, outputs
