"""Optional fast path on a GPU: a whole decode step, sampling included, captured once as a graph and replayed.

A small step is limited by kernel launches, so it becomes a single launch. No shape in it depends on the contexts: every
slot has a row, and attention reads a bucket of columns at least as wide as the longest context. The CPU keeps an upper
bound of that length, so it never waits for the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedModel
from typing_extensions import override

from .decode_step import Step
from .decoding import Choose, Decoder, newest_tokens
from .kv_cache import SlotCache

BUCKET = 64  # columns
GENERATORS = 4  # captured steps are kept for this many random generators
WARM_UP = 3  # runs before a capture, in which libraries initialize themselves


class Capture:
    """Captured steps for one number of slots, with the buffers at fixed addresses that they read.

    It outlives rollouts but not the storage of the weights. One decoder uses it at a time: its `user`.
    """

    def __init__(self, model: PreTrainedModel, cache: SlotCache, num_slots: int) -> None:
        self.cache = cache
        self.tokens = torch.zeros(num_slots, dtype=torch.int64, device=model.device)
        self.positions = torch.zeros_like(self.tokens)
        self.runs: dict[Any, tuple[Callable[[], None], list[torch.Tensor]]] = {}
        self.pool = torch.cuda.graph_pool_handle() if model.device.type == "cuda" else None  # memory of all graphs
        self.user: CapturedDecoder | None = None


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
        self.longest = 0  # upper bound of the longest context

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
        generator: torch.Generator | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        slots = starts.nonzero()[:, 0].to(tokens.device)
        if len(slots):
            self._prefill(tokens, lengths, slots, slots)
            self.longest = int(lengths.max())
        else:
            self.longest = min(self.longest + 1, self.max_length)
        self.capture.tokens.copy_(newest_tokens(tokens, lengths))
        self.capture.positions.copy_(lengths - 1)
        window = min(-(-self.longest // BUCKET) * BUCKET, self.max_length)
        run, outputs = self._captured_step(window, deterministic, generator)
        run()
        actions, log_probs = (output.clone() for output in outputs)
        return actions, log_probs

    def _captured_step(
        self, window: int, deterministic: bool, generator: torch.Generator | None
    ) -> tuple[Callable[[], None], list[torch.Tensor]]:
        """Return a function that runs the step, and the tensors that it writes its results to."""
        runs, key = self.capture.runs, (window, deterministic, generator)
        if key not in runs:
            known = list(dict.fromkeys(other for _, _, other in runs if other is not generator))
            if len(known) >= GENERATORS:  # every evaluation brings a new generator: drop the oldest
                for old in [key for key in runs if key[2] is known[0]]:
                    del runs[old]
            runs[key] = self._make_run(*key)
        return runs[key]

    def _make_run(
        self, window: int, deterministic: bool, generator: torch.Generator | None
    ) -> tuple[Callable[[], None], list[torch.Tensor]]:
        capture, step, choose = self.capture, self.step, self.choose
        precision = torch.promote_types(self.model.dtype, torch.float32)
        outputs = [torch.zeros_like(capture.tokens), torch.zeros_like(capture.tokens, dtype=precision)]

        def run() -> None:
            logits = step(capture.tokens, capture.positions, capture.cache, window, ragged=True)
            for output, made in zip(outputs, choose(logits, deterministic, generator), strict=True):
                output.copy_(made)

        if capture.tokens.device.type != "cuda":
            return run, outputs
        before = None if generator is None else generator.get_state()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        if generator is not None and before is not None:
            generator.set_state(before)  # undo what the warm-up drew
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph, pool=capture.pool):
            run()
        return graph.replay, outputs
