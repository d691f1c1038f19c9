"""Acting with a KV cache for the running contexts of B slots: the plain `Decoder`, and one that shares contexts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache
from typing_extensions import override

from ....core.devices import to_device, to_host
from ...choosing import Source
from .kv_cache import SlotCache
from .prefix_attention import WORTH_IT, Stems
from .replies import Unread, answered_slots, read_replies, unread_parts, unread_tokens
from .step import LlamaStep, Step

PREFILL = 2**16  # tokens of prompts or replies that are read at once; limits the memory of their activations
TOGETHER = 1024  # tokens of replies that a step reads with its own; more gain nothing by it
SHARED = 512  # tokens that reading a common beginning once has to save; fewer take less time than a call of the model
Choose = Callable[[torch.Tensor, bool, Source], tuple[torch.Tensor, torch.Tensor]]


class Decoder:
    """The plain path: every slot has a row in the cache, and a step reads the newest token of each.

    This is also the interface of the faster decoders, `ContextDecoder` and `CapturedDecoder`: `act` and `is_stale`.

    Args:
        model: reads the prompts.
        step: reads one token per row.
        choose: returns actions and their log-probabilities [B], given logits [B, V].
        num_slots: B.
        max_length: L, the longest context.
    """

    def __init__(self, model: PreTrainedModel, step: Step, choose: Choose, num_slots: int, max_length: int) -> None:
        self.model, self.step, self.choose, self.num_slots = model, step, choose, num_slots
        self.cache = SlotCache(model.config.get_text_config().num_hidden_layers, num_slots, max_length)
        self._weights, self._version = list(model.parameters()), -1
        self._lengths: torch.Tensor | None = None  # of the contexts of the last call [B]

    def is_stale(self) -> bool:
        """Return whether the cache must be filled again: the weights have changed since the last call."""
        version, self._version = self._version, sum(weight._version for weight in self._weights)
        return version != self._version

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
        """Choose the next token of every slot.

        Args:
            tokens: the contexts [B, L].
            lengths: of the contexts [B].
            starts: which contexts do not begin with the last call's, bool [B].
            playing: which slots matter, bool [B]; None for all. The others may get any token.
            deterministic: whether to choose the most likely token instead of sampling.
            source: of randomness; see `sample_categorical`.
            appended: how many tokens the other contexts have beyond the last call's and one more, int [B] on the host;
                0 or less for none, None for none in all slots.

        Returns:
            Tokens and their log-probabilities [B].
        """
        return self.choose(self.logits(tokens, lengths, starts, playing, appended), deterministic, source)

    @torch.inference_mode()
    def logits(
        self,
        tokens: torch.Tensor,
        lengths: torch.Tensor,
        starts: torch.Tensor,
        playing: torch.Tensor | None,
        appended: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Read what is new and return the logits after each slot's context [B, V]; arguments as in `act`."""
        slots = starts.cpu().nonzero()[:, 0]
        if len(slots):
            slots = to_device(slots, tokens.device)
            _, begun = self._prefill(tokens, lengths, slots, slots)
            if begun is not None and len(slots) == self.num_slots:
                return begun
        slots = answered_slots(starts, appended)
        unread = self._extend(tokens, lengths, slots, slots, appended)
        return self._step(newest_tokens(tokens, lengths), lengths - 1, unread)

    def _extend(
        self,
        tokens: torch.Tensor,
        lengths: torch.Tensor,
        slots: torch.Tensor,
        rows: torch.Tensor,
        appended: torch.Tensor | None,
    ) -> Unread | None:
        """Read the replies to these slots [n] into rows [n]; or return them, if few, for the step to read."""
        if appended is None or len(slots) == 0:
            return None
        there, held = to_device(slots, tokens.device), to_device(rows, tokens.device)
        parts = unread_parts(tokens, to_host(lengths[there])[0], there, held, appended[slots], PREFILL)
        if isinstance(self.step, LlamaStep) and len(parts) == 1 and parts[0].ids.numel() <= TOGETHER:
            return parts[0]
        for part in parts:
            read_replies(self.model, self.cache, part)
        return None

    def _step(self, tokens: torch.Tensor, positions: torch.Tensor, unread: Unread | None = None) -> torch.Tensor:
        """Read one token at its position in each of the first R rows; return the logits [R, V]."""
        first, last = torch.stack(positions.aminmax()).tolist()
        return self.step(tokens, positions, self.cache, last + 1, ragged=first != last, unread=unread)

    def _prefill(
        self, tokens: torch.Tensor, lengths: torch.Tensor, slots: torch.Tensor, rows: torch.Tensor, head: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Read the contexts of these slots [n] into rows [n]; equal neighbours are read once.

        A long beginning that all of them share, such as a system message, is also read once.

        Args:
            tokens: the contexts [B, L].
            lengths: of the contexts [B].
            slots: to read [n].
            rows: of the cache, to write [n].
            head: whether logits are needed.

        Returns:
            The lengths of these contexts [n], on the host, and the logits after them [n, V]; None if they are not
            needed, or if the lengths differ: then a step reads the last tokens again.
        """
        contexts, counts = to_host(tokens[slots], lengths[slots])
        first, last = torch.stack(counts.aminmax()).tolist()
        beyond = torch.arange(last) >= counts[:, None]
        distinct, sources = contexts[:, :last].masked_fill(beyond, 0).unique_consecutive(dim=0, return_inverse=True)
        same, at_once = _common_width(distinct, first - 1), max(PREFILL // last, 1)
        starts = torch.arange(0, len(distinct), at_once)
        ends = torch.searchsorted(sources, starts + at_once).tolist()  # sorted: neighbours have neighbouring sources
        distinct, sources = (to_device(each, tokens.device) for each in (distinct, sources))
        beginning, made = self._read_once(distinct[:1, :same]), []
        for start, begin, end in zip(starts.tolist(), [0, *ends], ends, strict=False):
            ids, source_rows = distinct[start : start + at_once, same:], sources[begin:end] - start
            read = _repeated(beginning, len(ids))
            if head and first == last:
                logits = self.model(ids, past_key_values=read, use_cache=True, logits_to_keep=1).logits
                made.append(logits[source_rows, -1])
            else:
                self.model.base_model(ids, past_key_values=read, use_cache=True)
            self.cache.place(rows[begin:end], read, source_rows)
        return counts, torch.cat(made) if made else None

    def _read_once(self, beginning: torch.Tensor) -> DynamicCache:
        """Return the cache of the tokens [1, S] that all contexts begin with; an empty one for none."""
        read = DynamicCache()
        if beginning.shape[1]:
            self.model.base_model(beginning, past_key_values=read, use_cache=True)
        return read


class ContextDecoder(Decoder):
    """Optional fast path: slots with equal contexts share a row until they choose different tokens.

    Slots that do not play have no row, and the rows in use are always the first ones, so the cost of a step depends on
    the number of distinct contexts. A context stays in its row if possible; only forks and moves into gaps are copied.
    """

    def __init__(self, model: PreTrainedModel, step: Step, choose: Choose, num_slots: int, max_length: int) -> None:
        super().__init__(model, step, choose, num_slots, max_length)
        self.row_of_slot = torch.zeros(num_slots, dtype=torch.int64, device=model.device)
        self.has_row = torch.zeros(num_slots, dtype=torch.bool, device=model.device)
        self.one_to_one = False  # whether slot i has row i; then no context can fork any more
        self.stems: Stems | None = None  # from when all slots start together to when one restarts
        self.prompt_of_slot = self.row_of_slot

    @override
    @torch.inference_mode()
    def logits(
        self,
        tokens: torch.Tensor,
        lengths: torch.Tensor,
        starts: torch.Tensor,
        playing: torch.Tensor | None,
        appended: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if playing is None or not playing.any():
            playing = torch.ones_like(starts)
        starts, playing = starts.to(tokens.device), playing.to(tokens.device)
        newest = newest_tokens(tokens, lengths)
        if self.one_to_one and playing.all() and not starts.any():
            answered = answered_slots(starts, appended)
            return self._step(newest, lengths - 1, self._extend(tokens, lengths, answered, answered, appended))
        going = playing & self.has_row & ~starts
        parents, child_of_slot = self._children(unread_tokens(tokens, lengths, ~going, appended), lengths, going)
        slots = (playing & ~going).nonzero()[:, 0]
        firsts, prompt_of_slot = _neighbours(tokens, lengths, slots)
        rows = self._assign(parents, len(firsts), int(lengths.max()))
        begun = None
        if len(firsts):
            counts, begun = self._prefill(tokens, lengths, firsts, rows[len(parents) :])
            self._begin_stems(int(counts.min()) - 1, slots, prompt_of_slot)
        self.row_of_slot = torch.zeros_like(lengths)
        self.row_of_slot[going] = rows[child_of_slot]
        answered = answered_slots(~going, appended)
        held, place = self.row_of_slot[answered].unique(return_inverse=True)  # equal contexts are read once
        firsts_of_rows = torch.empty_like(held).index_copy_(0, place, answered)
        unread = self._extend(tokens, lengths, firsts_of_rows, held, appended)
        self.row_of_slot[slots] = rows[len(parents) + prompt_of_slot]
        self.has_row = playing.clone()
        self.one_to_one = torch.equal(self.row_of_slot, torch.arange(self.num_slots, device=rows.device))
        if begun is not None and len(parents) == 0:
            return begun[self.row_of_slot]
        used = self.row_of_slot[playing]
        newest_of_row, positions = torch.empty_like(rows), torch.empty_like(rows)
        newest_of_row[used], positions[used] = newest[playing], lengths[playing] - 1
        if self.stems is not None:
            group_of_row = torch.empty_like(rows)
            group_of_row[used] = self.prompt_of_slot[playing]
            self.stems.arrange(group_of_row)
        return self._step(newest_of_row, positions, unread)[self.row_of_slot]

    def _begin_stems(self, width: int, slots: torch.Tensor, prompt_of_slot: torch.Tensor) -> None:
        """Let slots [n] that have just read their prompts share stems, if no other slot has a context.

        Args:
            width: of the stems.
            slots: in ascending order.
            prompt_of_slot: of those slots, and also its row [n].
        """
        num_prompts = int(prompt_of_slot.max()) + 1
        alone = len(slots) == self.num_slots
        worth_it = isinstance(self.step, LlamaStep) and (len(slots) - num_prompts) * width >= WORTH_IT
        self.stems = Stems(self.cache, num_prompts, width) if alone and worth_it else None
        self.prompt_of_slot = prompt_of_slot
        for index, layer in enumerate(self.cache.layers):
            layer.stem = None if self.stems is None else self.stems.of_layer(index)

    def _children(
        self, unread: torch.Tensor, lengths: torch.Tensor, going: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Group the going slots [G] by context: the old row of each group, sorted [C], and the group of each slot.

        Contexts of one row differ in what was not read of them [B, Q], which counts whole since replies may end in the
        same token, or in length: a slot that waits for a reply does not grow.
        """
        old, held, suffixes = self.row_of_slot[going], lengths[going], unread[going]
        if unread.shape[1] == 1:
            vocab, longest = torch.stack([unread.max(), lengths.max()]).tolist()
            rows, places = (longest + 1) * (vocab + 1), vocab + 1
            keys, child_of_slot = (old * rows + held * places + suffixes[:, 0]).unique(return_inverse=True)
            return keys // rows, child_of_slot
        parts = [old[:, None], held[:, None], suffixes]
        keys, child_of_slot = torch.cat(parts, 1).unique(dim=0, return_inverse=True)
        return keys[:, 0], child_of_slot

    def _assign(self, parents: torch.Tensor, num_new: int, width: int) -> torch.Tensor:
        """Give rows to the contexts that go on from these old rows (sorted [C]) and to new ones.

        Returns:
            Distinct rows 0 to C + num_new - 1 [C + num_new], those of the new contexts last.
        """
        count = len(parents) + num_new
        stays = parents < count
        stays[1:] &= parents[1:] != parents[:-1]  # the first child stays in its parent's row
        free = torch.ones(count, dtype=torch.bool, device=parents.device)
        free[parents[stays]] = False
        rows = torch.nn.functional.pad(parents, (0, num_new))
        rows[torch.nn.functional.pad(~stays, (0, num_new), value=True)] = free.nonzero()[:, 0]
        if not stays.all():
            self.cache.copy(parents[~stays], rows[: len(parents)][~stays], width)
        return rows


def newest_tokens(tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return the last token of each context [B]."""
    return tokens.gather(1, lengths[:, None] - 1)[:, 0]


def _common_width(contexts: torch.Tensor, most: int) -> int:
    """Return how many first columns, at most so many, are the same in all rows [n, L]; 0 if too few are saved."""
    width = int((contexts[:, :most] == contexts[:1, :most]).all(0).int().cumprod(0).sum())
    return width if (len(contexts) - 1) * width >= SHARED else 0


def _repeated(read: DynamicCache, rows: int) -> DynamicCache:
    """Return a cache with this many copies of the only row of another."""
    copies = DynamicCache()
    for index, layer in enumerate(read.layers):
        copies.update(*(states.expand(rows, -1, -1, -1) for states in (layer.keys, layer.values)), index)
    return copies


def _neighbours(tokens: torch.Tensor, lengths: torch.Tensor, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Group neighbours with equal contexts: the first slot of each group, and the group of each of these slots [n]."""
    if len(slots) == 0:
        return slots, slots
    contexts, counts = tokens[slots], lengths[slots]
    beyond = torch.arange(tokens.shape[1], device=tokens.device) >= counts[:, None]
    contexts = contexts.masked_fill(beyond, -1)
    other = (contexts[1:] != contexts[:-1]).any(1)
    first = torch.nn.functional.pad(other, (1, 0), value=True)
    return slots[first], first.cumsum(0) - 1
