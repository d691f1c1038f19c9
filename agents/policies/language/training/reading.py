"""Teacher forcing in which a language model reads every distinct context of a batch only once.

A context is a prompt and the tokens after it: those chosen, and replies of the environment. Episodes of one prompt
share their contexts up to the token where they differ, so the contexts of a batch form trees. A tree is read as one
row: each token occurs once, its position is its depth, and it attends to its ancestors only. So it depends on exactly
the tokens that it depends on in a row of one episode: log-probabilities and gradients are the same, with less work.
Many tokens are read as one row with the attention of `prefix_sharing.py`, few tokens or models with other attention as
rows of trees with a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from ....core.devices import to_device, to_host
from ....core.rollout import Rollout
from ...base import take_rows
from ..models.attention import attention_mask, without_cudnn
from .checkpointing import recomputed_layers
from .llama_pass import Attend, is_written_out, llama_pass
from .prefix_sharing import Forest, attention_over, forest_attention, plant, rows_attention, size_of

WORTH_IT = 0.8  # trees are read if they are at most this share of the plain rows' work: their masks cost time, too
MANY_NODES = 1024  # from here on, a forest saves more than its operations take longer than those of rows of trees
HOST = torch.device("cpu")
ELEMENTS = 3 * 2**24  # of a chunk of `by_chunks`; 192 MiB in float32
GPU_ELEMENTS = 2**28  # products of few rows would read a large head again and again


@dataclass(frozen=True)
class Reading:
    """What to read, and which output predicts each step of a rollout.

    An edge is a context and the token chosen in it. Steps with the same edge are computed once.

    Attributes:
        ids: the tokens to read, right-padded [R, W].
        positions: of each token in its episode [R, W]; None means 0, 1, 2, ...
        visible: which tokens (last axis) each token attends to, bool [R, 1, W, W]; None means itself and all before it.
        nodes: index into the flattened `ids` of the token whose output predicts each edge [E].
        actions: the token chosen at each edge [E].
        edge_of_step: the edge of each existing step, in order of (episode, step) [M].
        forest: how the tokens of the only row attend to each other; None if that is said by `visible`.
    """

    ids: torch.Tensor
    positions: torch.Tensor | None
    visible: torch.Tensor | None
    nodes: torch.Tensor
    actions: torch.Tensor
    edge_of_step: torch.Tensor
    forest: Forest | None = None

    def outputs(self, model: PreTrainedModel, part: nn.Module, name: str, recompute: bool = False) -> torch.Tensor:
        """Run a part of the model and return the output of this name for each edge [E, ...].

        Args:
            model: the policy's.
            part: of it, or the critic's trunk.
            name: of the output.
            recompute: whether the backward pass computes each layer again; see `checkpointing.py`.
        """
        if name == "last_hidden_state" and is_written_out(part):
            rows, width = self.ids.shape
            positions = torch.arange(width).repeat(rows) if self.positions is None else self.positions.flatten()
            return llama_pass(part, self.ids.flatten(), positions, self._between_nodes(part), self.nodes, recompute)
        inputs: dict[str, Any] = {}
        if self.forest is not None:  # which needs no mask; a mask of four dimensions keeps transformers from making one
            mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.ids.device)
            inputs = {"attention_mask": mask, "position_ids": self.positions}
        elif self.visible is not None:  # otherwise right-padded and causal: padding cannot influence earlier columns
            assert self.positions is not None
            distance = self.positions[:, None, :, None] - self.positions[:, None, None, :]
            inputs = {"attention_mask": attention_mask(model, self.visible, distance), "position_ids": self.positions}
        attention = partial(self._attention, part)
        with attention(), recomputed_layers(part, attention) if recompute else nullcontext():
            made = part(self.ids, use_cache=False, **inputs)
        return take_rows(made[name].flatten(0, 1), self.nodes)

    def _between_nodes(self, part: Any) -> Attend:
        """Return what computes attention between the tokens, without rows."""
        if self.forest is None:
            return partial(rows_attention, self.ids.shape, self.visible)
        config = part.config.get_text_config()
        heads = config.num_attention_heads // config.num_key_value_heads
        return partial(forest_attention, self.forest.added(heads, part.dtype))

    @contextmanager
    def _attention(self, part: nn.Module) -> Iterator[None]:
        """Compute attention as this reading needs it, wherever layers run: in the forward pass, or again after it."""
        forest = nullcontext() if self.forest is None else attention_over(self.forest, part)
        with without_cudnn(self.ids.device), forest:
            yield


def plan_reading(
    rollout: Rollout,
    merge_rows: bool,
    share_prefixes: bool,
    width: int,
    limit: int | None = None,
    forests: bool = False,
) -> Reading:
    """Plan how the contexts of a rollout are read: on the host, from one copy of its tokens.

    Args:
        rollout: its observations are `tokens` [N, L] and `length` [N]; see `Rollout`.
        merge_rows: whether equal episodes are read once.
        share_prefixes: whether equal beginnings are read once, too, if that is less work.
        width: number of tokens in a row of trees, unless an episode is longer; attention costs the square of it.
        limit: the longest row of trees that the model can read, at least as long as any episode; None for any.
        forests: whether the model's attention takes forests.
    """
    device = rollout.mask.device
    ids, lengths, steps, columns, actions = _sequences(rollout)
    rows = steps[:, 0]
    if (merge_rows or share_prefixes) and len(columns):
        beyond = torch.arange(ids.shape[1]) >= lengths[:, None]
        chains, chain_of_row = ids.masked_fill(beyond, -1).unique(dim=0, return_inverse=True)  # sorted
        if share_prefixes and forests and _forest_is_worth_it(chains, *(counts := _counts(chains)), width):
            ids, positions, forest, node = plant(chains, *counts, device)
            return _edges(ids, positions, None, node[chain_of_row[rows], columns], actions, merge=True, forest=forest)
        if share_prefixes:
            trees = _grow(chains, width, limit, device)
            if trees is not None:
                return _edges(*trees[:3], trees[3][chain_of_row[rows], columns], actions, merge=True)
        if merge_rows:
            ids, rows = chains.clamp(min=0), chain_of_row[rows]
    place = rows * ids.shape[1] + columns
    return _edges(to_device(ids, device), None, None, place, actions, merge_rows)


def _sequences(rollout: Rollout) -> tuple[torch.Tensor, ...]:
    """Put actions into their contexts, on the host.

    Returns:
        ids: the tokens to read [N, W], right-padded, without the last action.
        lengths: of the rows of `ids` [N]; 0 for an episode without a step.
        steps: (episode, step) of every existing action [M, 2].
        columns: the column of `ids` whose output predicts that action [M].
        actions: themselves [M].
    """
    assert isinstance(rollout.observations, dict)
    first = rollout.observations["tokens"], rollout.observations["length"]
    gaps = () if rollout.positions is None else (rollout.positions,)
    tokens, prompt_lengths, actions, mask, *positions = to_host(*first, rollout.actions, rollout.mask, *gaps)
    steps = mask.nonzero()  # [M, 2]
    actions = actions[mask]
    columns = positions[0][mask] - 1 if positions else prompt_lengths[steps[:, 0]] + steps[:, 1] - 1
    ids = torch.nn.functional.pad(tokens, (0, 1))  # a truncated episode may fill the context
    ids[steps[:, 0], columns + 1] = actions
    width = int(columns.max()) + 1 if len(columns) else 1
    lengths = torch.zeros_like(prompt_lengths).scatter_reduce(0, steps[:, 0], columns + 1, "amax")
    return ids[:, :width], lengths, steps, columns, actions


def _edges(
    ids: torch.Tensor,
    positions: torch.Tensor | None,
    visible: torch.Tensor | None,
    node_of_step: torch.Tensor,
    actions: torch.Tensor,
    merge: bool,
    forest: Forest | None = None,
) -> Reading:
    """Return a reading of these tokens; if `merge`, equal steps share an edge. The steps are still on the host."""
    nodes, edge_of_step = node_of_step, torch.arange(len(actions), device=actions.device)
    if merge and len(actions):
        vocab = int(actions.max()) + 1
        edges, edge_of_step = (node_of_step * vocab + actions).unique(return_inverse=True)
        nodes, actions = edges // vocab, edges % vocab
    nodes, actions, edge_of_step = (to_device(each, ids.device) for each in (nodes, actions, edge_of_step))
    return Reading(ids, positions, visible, nodes, actions, edge_of_step, forest)


def tree_of_two(contexts: torch.Tensor, fork: int) -> Reading:
    """Read two contexts [2, L] that differ from column `fork` on as one tree, with a node for every token of both."""
    (chains,), used = to_host(contexts), torch.tensor([2 * contexts.shape[1] - fork])
    ids, positions, visible, place = _lay_out(chains, used.new_zeros(2), torch.tensor([0, fork]), used, contexts.device)
    return _edges(ids, positions, visible, place.flatten(), chains.flatten(), merge=False)


def forest_of_two(contexts: torch.Tensor, fork: int) -> Reading:
    """Read them as `tree_of_two` does, but as a forest."""
    (chains,), lengths = to_host(contexts), torch.full((2,), contexts.shape[1])
    ids, positions, forest, node = plant(chains, lengths, torch.tensor([0, fork]), contexts.device)
    return _edges(ids, positions, None, node.flatten(), chains.flatten(), merge=False, forest=forest)


def _counts(chains: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the length of each chain and how many tokens it shares with the one before it, both [C]."""
    same = (chains[1:] == chains[:-1]) & (chains[1:] >= 0)
    return (chains >= 0).sum(1), torch.nn.functional.pad(same.cumprod(1).sum(1), (1, 0))


def _forest_is_worth_it(chains: torch.Tensor, lengths: torch.Tensor, shared: torch.Tensor, width: int) -> bool:
    nodes, pairs = size_of(lengths, shared)
    return nodes >= MANY_NODES and nodes + pairs / (6 * width) <= WORTH_IT * _work(len(chains), chains.shape[1], width)


def _grow(
    chains: torch.Tensor, width: int, limit: int | None = None, device: torch.device = HOST
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Pack chains (contexts with nothing after them) into rows of trees; None if a row for each is less work.

    A chain shares its first tokens with the chain before it and adds the others.

    Args:
        chains: distinct and sorted, -1 beyond their ends [C, L].
        width: of a row, unless a chain is longer.
        limit: of a row, at least the longest chain; None for any.
        device: where they will be read.

    Returns:
        ids [R, W], positions [R, W], visible [R, 1, W, W], on the device, and the index of each chain's tokens in the
        flattened ids [C, L].
    """
    count, longest = chains.shape
    lengths, shared = _counts(chains)
    room = max(width, 2 * longest) if limit is None else min(limit, max(width, 2 * longest))
    row, here, used = _fill(lengths.tolist(), shared.tolist(), room)
    if _work(row[-1] + 1, max(used), width) > WORTH_IT * _work(count, longest, width):
        return None
    return _lay_out(chains, torch.tensor(row), torch.tensor(here), torch.tensor(used), device)


def _work(rows: int, length: int, width: int) -> float:
    """Estimate the cost of rows in tokens; attention doubles a token's cost in rows of about 6 widths."""
    return rows * length * (1 + length / (6 * width))


def _lay_out(
    chains: torch.Tensor, row: torch.Tensor, shared: torch.Tensor, used: torch.Tensor, device: torch.device = HOST
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Lay out sorted chains as rows of trees; returns what `_grow` returns.

    Args:
        chains: [C, L], -1 beyond their ends.
        row: of each chain [C].
        shared: how many tokens each chain shares with the one before it in its row [C].
        used: number of tokens of each row [R].
        device: where they will be read.
    """
    (count, longest), (rows, wide) = chains.shape, (len(used), int(used.max()))
    number = torch.arange(count, device=chains.device)[:, None]  # [C, 1]
    column = torch.arange(longest, device=chains.device).expand(count, -1)  # [C, L]
    owned = (column >= shared[:, None]) & (chains >= 0)  # [C, L]
    owner = number.where(column >= shared[:, None], 0).cummax(0).values  # the chain that added each token [C, L]
    order = owned.flatten().cumsum(0).view(count, longest) - 1  # counts added tokens, chain by chain
    place = row[:, None] * wide + order - (used.cumsum(0) - used)[row][:, None]  # index into the flattened rows

    def arrange(values: torch.Tensor) -> torch.Tensor:
        out = values.new_zeros(rows * wide)
        out[place[owned]] = values.expand_as(owned)[owned]
        return out.view(rows, wide)

    place_of_chain = place.gather(0, owner)
    made = (arrange(chains), arrange(column), arrange(number), arrange(owned), owner)
    ids, depth, chain, filled, owner = (to_device(each, device) for each in made)
    ancestor = owner[chain[:, :, None], depth[:, None, :]] == chain[:, None, :]  # large: made on the device
    visible = ancestor & (depth[:, None, :] <= depth[:, :, None]) & filled[:, None, :]
    visible |= torch.eye(wide, dtype=torch.bool, device=device)  # padding attends to itself: avoids 0 / 0
    return ids, depth, visible[:, None], place_of_chain


def _fill(lengths: list[int], shared: list[int], width: int) -> tuple[list[int], list[int], list[int]]:
    """Put chains into rows, one after the other; the first chain of a row shares nothing.

    Returns:
        The row of each chain, how many tokens it shares there, and how many tokens each row holds.
    """
    row, here, used = [], [], [0]
    for length, common in zip(lengths, shared, strict=True):
        if used[-1] == 0 or used[-1] + length - common > width:
            common = 0
            if used[-1]:
                used.append(0)
        used[-1] += length - common
        row.append(len(used) - 1)
        here.append(common)
    return row, here, used


class ChosenLogProbs(torch.autograd.Function):
    """log π(a) of chosen actions [E], given logits [E, V] and actions [E]:  ∂ log π(a) / ∂ logits = 1_a - π

    Autograd would make two more tensors [E, V] for the gradient, and read them several times.
    """

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Return them in at least float32."""
        ctx.dtype, precision = logits.dtype, torch.promote_types(logits.dtype, torch.float32)
        log_probs = torch.log_softmax(logits, dim=-1, dtype=precision)
        ctx.save_for_backward(log_probs, actions)
        return log_probs.gather(1, actions[:, None])[:, 0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the gradient of the logits."""
        log_probs, actions = ctx.saved_tensors
        made = log_probs.exp().mul_(-gradient[:, None])
        return made.scatter_add_(1, actions[:, None], gradient[:, None]).to(ctx.dtype), None


def by_chunks(
    function: Callable[..., tuple[torch.Tensor, ...]], width: int, *inputs: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return `function(*inputs)` without keeping the intermediate results of all rows at once.

    Beyond `ELEMENTS` elements (on a GPU `GPU_ELEMENTS`), the rows are computed in chunks, whose intermediate results
    are dropped and computed again in the backward pass.

    Args:
        function: maps inputs [E, ...] to outputs [E, ...], each row independently.
        width: elements per row of its intermediate results, such as the size of the vocabulary.
        inputs: [E, ...] each.
    """
    rows = max((GPU_ELEMENTS if inputs[0].device.type == "cuda" else ELEMENTS) // width, 1)
    if len(inputs[0]) <= rows:
        return function(*inputs)
    chunks = zip(*(x.split(rows) for x in inputs), strict=True)
    parts = [checkpoint(function, *chunk, use_reentrant=False) for chunk in chunks]
    return tuple(torch.cat(columns) for columns in zip(*parts, strict=True))
