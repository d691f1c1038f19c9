"""Acting on a GPU: a whole decode step, sampling included, captured once as a graph and replayed.

A small step is bound by the launches of its kernels, not by their work, so the step is one launch. Nothing in it has a
shape that depends on the contexts: every slot has a row, and attention looks at a bucket of columns that is at least as
wide as the longest context. The host keeps a bound of that length by itself, so that it never has to ask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from .decoding import Choose, Decoder, newest_tokens
from .steps import Step

BUCKET = 64  # columns
GENERATORS = 4  # whose captured steps are kept
WARM_UP = 3  # runs before a capture, so that libraries have set themselves up


class CapturedDecoder(Decoder):
    """Chooses the next token of every slot by replaying a captured step; on a CPU the step is simply run.

    The buffers and graphs outlive a rollout, but not the storage of the weights: when that changes, the policy makes a
    new decoder. Each user of the decoder holds a `Ticket`; the cache belongs to the last ticket given out, and the
    holder of an older one begins anew from its observations.
    """

    def __init__(self, model: PreTrainedModel, step: Step, choose: Choose, num_slots: int, max_length: int) -> None:
        super().__init__(model, step, choose, num_slots, max_length)
        self.max_length = max_length
        self.tokens = torch.zeros(num_slots, dtype=torch.int64, device=model.device)  # what the step reads
        self.positions = torch.zeros_like(self.tokens)
        self.runs: dict[Any, tuple[Callable[[], None], list[torch.Tensor]]] = {}
        self.owner: Ticket | None = None
        self.pool = torch.cuda.graph_pool_handle() if model.device.type == "cuda" else None  # of all graphs
        self.longest = 0  # at least the longest context

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
        """Return tokens and their log-probabilities [B]; see `Decoder.act`."""
        slots = starts.nonzero()[:, 0].to(tokens.device)
        if len(slots):
            self._prefill(tokens, lengths, slots, slots)
            self.longest = int(lengths.max())
        else:
            self.longest = min(self.longest + 1, self.max_length)
        self.tokens.copy_(newest_tokens(tokens, lengths))
        self.positions.copy_(lengths - 1)
        window = min(-(-self.longest // BUCKET) * BUCKET, self.max_length)
        key = (window, deterministic, generator)
        if key not in self.runs:
            self._forget_generators(generator)
            self.runs[key] = self._capture(*key)
        run, outputs = self.runs[key]
        run()
        actions, log_probs = (output.clone() for output in outputs)
        return actions, log_probs

    def _forget_generators(self, coming: torch.Generator | None) -> None:
        """Drop the steps of the generator that came first, if there would be too many: each evaluation brings one."""
        known = list(dict.fromkeys(generator for _, _, generator in self.runs if generator is not coming))
        if len(known) >= GENERATORS:
            self.runs = {key: run for key, run in self.runs.items() if key[2] is not known[0]}

    def _capture(
        self, window: int, deterministic: bool, generator: torch.Generator | None
    ) -> tuple[Callable[[], None], list[torch.Tensor]]:
        """Return a function that runs the step, and the tensors it leaves its results in."""
        precision = torch.promote_types(self.model.dtype, torch.float32)
        outputs = [torch.zeros_like(self.tokens), torch.zeros_like(self.tokens, dtype=precision)]

        def run() -> None:
            logits = self.step(self.tokens, self.positions, self.cache, window, ragged=True)
            for output, made in zip(outputs, self.choose(logits, deterministic, generator), strict=True):
                output.copy_(made)

        if self.tokens.device.type != "cuda":
            return run, outputs
        drawn = None if generator is None else generator.get_state()
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                run()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        if generator is not None and drawn is not None:
            generator.set_state(drawn)  # what the warm-up drew is not missed
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph, pool=self.pool):
            run()
        return graph.replay, outputs


class Captures(dict[int, CapturedDecoder]):
    """The decoders of a policy by their number of slots; a copy of the policy begins without any."""

    def __deepcopy__(self, memo: Any) -> Captures:
        return Captures()


@dataclass(eq=False)
class Ticket:
    """A running use of a `CapturedDecoder`, as the state of a policy."""

    decoder: CapturedDecoder

    @property
    def num_slots(self) -> int:
        """B."""
        return self.decoder.num_slots

    @property
    def step(self) -> Step:
        """What reads a token of each row."""
        return self.decoder.step

    def is_stale(self) -> bool:
        """Tell whether somebody else has used the cache since, or the weights have changed."""
        mine = self.decoder.owner is self
        self.decoder.owner = self
        return self.decoder.is_stale() or not mine

    def act(self, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Choose with the decoder."""
        return self.decoder.act(*arguments)
