"""Acting with a KV cache for the running contexts of B slots."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from ..devices import HALVES, to_device, to_host
from .acting_copy import is_changed
from .attention import PRODUCTS, Masks, attention_by
from .kv_cache import SlotCache, cached
from .prefix_sharing import takes_forests
from .seats import Contexts, OwnRows, SharedRows, differs

PREFILL = 2**16  # tokens of prompts or replies that are read at once; limits the memory of their activations
MANY = 16  # rows, and columns, from which on attention as plain products takes less time on a CPU
COLLECTORS = ("deprecate_kwarg", "merge_with_config_defaults", "capture_outputs")  # decorators of transformers


class Decoder:
    """The state of acting in B slots during one rollout: prompts are read once, then each slot's newest token.

    Its seats tell which row of the cache each slot has.

    Args:
        model: the one that acts; see `acting_copy`.
        source: the one whose weights it has; a cache is of the weights that they were.
        cache: with a row for each slot.
        plain_head: whether logits are the output embeddings applied to the trunk's output.

    Attributes:
        is_new: whether it has read nothing yet.
        held: the length of each context, or more, on the host [B].
    """

    def __init__(
        self, model: PreTrainedModel, source: PreTrainedModel, cache: SlotCache, plain_head: bool = False
    ) -> None:
        self.model, self.cache, self.is_new = model, cache, True
        self.held = torch.zeros(cache.num_rows, dtype=torch.int64)
        self._newest = NewestToken(model, plain_head)
        self._weights = list(source.parameters())
        self._version = self._present_version()
        self._lengths: torch.Tensor | None = None  # of the contexts of the last call [B]
        on_cpu = model.device.type == "cpu"
        self._attends = on_cpu and takes_forests(model) and model.dtype not in HALVES
        self._seats = SharedRows(cache) if on_cpu else OwnRows(cache)

    def is_old(self) -> bool:
        """Return whether the weights have changed since this was made."""
        return self._present_version() != self._version

    def _present_version(self) -> int:
        return sum(weight._version for weight in self._weights)

    def appended(self, lengths: torch.Tensor, said: torch.Tensor | int | None) -> torch.Tensor | None:
        """Return how many tokens each context has beyond the last call's and one more, int [B] on the host.

        Args:
            lengths: of the contexts [B]; kept.
            said: by the environment, see `Actor`; if it is None, the lengths are compared.

        Returns:
            Numbers of tokens, below -1 for a context that is another one; None for at most one more in all slots.
        """
        before, self._lengths = self._lengths, lengths
        if said is None:
            return None if before is None else (lengths - before - 1).cpu()
        return None if isinstance(said, int) else said

    @torch.inference_mode()
    def logits(self, asked: Contexts) -> torch.Tensor:
        """Read the new tokens and return the logits after each slot's context [B, V]."""
        self.is_new = False
        self.held += 1
        new, going = self._seats.take(asked)
        begun = self._prefill(asked, new) if len(new) else None
        if begun is None or going.any():
            self._read_replies(asked, going)
            newest, positions = self._seats.by_row(asked.newest), self._seats.by_row(asked.lengths - 1)
            window = int(positions.max()) + 1
            pays = self._attends and min(len(newest), window) >= MANY
            with attention_by(PRODUCTS, self.model) if pays else nullcontext():
                begun = self._newest(newest, positions, self.cache, window)
        return self._seats.by_slot(begun)

    def _read_replies(self, asked: Contexts, going: torch.Tensor) -> None:
        """Read the replies to slots that go on, bool [B]: each action and its reply without the last token.

        All contexts of a pass end with the last query; the queries of a shorter reply begin with tokens that were read
        before, whose keys and values stay as they are. So no query is beyond the window, also of models whose mask
        counts columns from its end.
        """
        tokens, lengths, appended = asked.tokens, asked.lengths, asked.appended
        if appended is None or not len(answered := ((appended > 0) & going).nonzero()[:, 0]):
            return
        device, longest = tokens.device, int(appended[answered].max())
        slots = to_device(answered, device)
        (ends,) = to_host(lengths[slots])
        self.held[answered] = ends
        rows, behind = self._seats.rows(slots), torch.arange(longest) - longest
        columns = (ends - 1)[:, None] + behind  # [n, Q]
        unread = behind >= -appended[answered, None]
        for part in torch.arange(len(ends)).split(max(PREFILL // longest, 1)):
            places, queries = unread[part].nonzero().unbind(1)
            cells = to_device(torch.stack([places, queries, columns[part][places, queries]]), device)
            positions = to_device(columns[part].clamp(min=0), device)
            here, window = slice(int(part[0]), int(part[-1]) + 1), int(ends[part].max()) - 1
            self.cache.begin_reading(rows[here], cells, window)
            self.model.base_model(
                tokens[slots[here, None], positions],
                attention_mask=self._newest.masks(positions, window),
                position_ids=positions,
                **cached(self.model, self.cache),
            )

    def _prefill(self, asked: Contexts, slots: torch.Tensor, head: bool = True) -> torch.Tensor | None:
        """Read the contexts of these slots into their rows; equal neighbours, such as a group's, are read once.

        Args:
            asked: the contexts of all slots.
            slots: to read, on the host [n].
            head: whether logits are needed.

        Returns:
            The logits after these contexts [n, V]; None if they are not needed, or if the lengths differ: then a step
            reads the last tokens again.
        """
        there = to_device(slots, asked.tokens.device)
        contexts, counts = to_host(asked.tokens[there], asked.lengths[there])
        self.held[slots], rows = counts, self._seats.rows(there)
        first, last = torch.stack(counts.aminmax()).tolist()
        new = differs(contexts, counts)
        distinct, sources = contexts[new, :last], new.cumsum(0) - 1
        at_once = max(PREFILL // last, 1)
        starts = torch.arange(0, len(distinct), at_once)
        ends = torch.searchsorted(sources, starts + at_once).tolist()  # sorted: neighbours have neighbouring sources
        distinct, sources = (to_device(each, there.device) for each in (distinct, sources))
        made = []
        for start, begin, end in zip(starts.tolist(), [0, *ends], ends, strict=False):
            ids, source_rows = distinct[start : start + at_once], sources[begin:end] - start
            read = DynamicCache()
            if head and first == last:
                logits = self.model(ids, logits_to_keep=1, **cached(self.model, read)).logits
                made.append(logits[source_rows, -1])
            else:
                self.model.base_model(ids, **cached(self.model, read))
            self.cache.place(rows[begin:end], read, source_rows)
        return torch.cat(made) if made else None


class NewestToken:
    """A decode step: reads one token per row with the model's own forward pass.

    With a plain head, trunk and head are called one after the other, without what transformers wraps around each to
    collect outputs that nobody asked for, rename and merge defaults: with two layers of 128 a tenth of a step.

    Args:
        model: the one that acts.
        plain_head: see `Decoder`.

    Attributes:
        masks: of the model.
    """

    def __init__(self, model: PreTrainedModel, plain_head: bool) -> None:
        self.masks, self._model, self._head = Masks(model), model, model.get_output_embeddings()
        self._trunk: Callable[..., Any] | None = None
        if plain_head and not any(map(is_changed, (model, model.base_model))):
            forward = type(model.base_model).forward
            while forward.__code__.co_qualname.partition(".")[0] in COLLECTORS:
                forward = forward.__wrapped__
            self._trunk = partial(forward, model.base_model)

    def __call__(self, tokens: torch.Tensor, positions: torch.Tensor, cache: SlotCache, window: int) -> torch.Tensor:
        """Return the logits after each token [R, V].

        Args:
            tokens: int64 [R].
            positions: of the tokens in their contexts, int64 [R].
            cache: its first R rows hold the tokens before them.
            window: how many columns to read, more than any position.
        """
        cache.begin(positions, window)
        places = positions[:, None]
        inputs = {"position_ids": places, "attention_mask": self.masks(places, window), **cached(self._model, cache)}
        if self._trunk is None:
            return self._model(tokens[:, None], logits_to_keep=1, **inputs).logits[:, -1]
        states = self._trunk(tokens[:, None], **inputs).last_hidden_state
        return self._head(states)[:, -1]
