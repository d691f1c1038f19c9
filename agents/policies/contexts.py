"""What a language model has to read to evaluate episodes: every distinct context once.

A context is a prompt and the tokens chosen after it. Episodes of one prompt share their contexts up to the token where
they part, so the contexts of a batch form trees. A tree is read as one row: each token stands once, at the position of
its depth, and sees its ancestors only. What a token's output depends on is then exactly what it depends on in the
episode's own row, and so are log-probabilities and gradients; the work is that of the distinct contexts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedModel

from ..rollout import Rollout
from .masks import attention_mask

WORTH_IT = 0.8  # share of the plain rows' work up to which trees are read: their masks have a price of their own


@dataclass(frozen=True)
class Reading:
    """What to read, and where each step of a rollout finds its prediction.

    Steps that choose the same token in the same context are one edge: what is computed per edge holds for all of them.

    Attributes:
        ids: what is read, right-padded [R, W].
        positions: of each token in its own episode [R, W]; None: 0, 1, 2, ...
        visible: which tokens (last axis) each token sees, bool [R, 1, W, W]; None: itself and those before it.
        nodes: the place in `ids`, flattened, whose output predicts each edge [E].
        actions: the token of each edge [E].
        edge_of_step: the edge of each existing step, in order of (episode, step) [M].
    """

    ids: torch.Tensor
    positions: torch.Tensor | None
    visible: torch.Tensor | None
    nodes: torch.Tensor
    actions: torch.Tensor
    edge_of_step: torch.Tensor

    def outputs(self, model: PreTrainedModel, part: nn.Module, name: str) -> torch.Tensor:
        """Return an output of a part of the model, such as its last hidden state, for each edge [E, ...]."""
        if self.visible is None:  # right-padded and causal: a padded column cannot reach an earlier one
            made = part(self.ids, use_cache=False)
        else:
            assert self.positions is not None
            distance = self.positions[:, None, :, None] - self.positions[:, None, None, :]
            mask = attention_mask(model, self.visible, distance)
            made = part(self.ids, attention_mask=mask, position_ids=self.positions, use_cache=False)
        return made[name].flatten(0, 1)[self.nodes]


def plan_reading(
    rollout: Rollout, merge_rows: bool, share_prefixes: bool, width: int, limit: int | None = None
) -> Reading:
    """Plan how the contexts of a rollout are read.

    Args:
        rollout: observations are first observations, `tokens` [N, L] and `length` [N].
        merge_rows: whether equal episodes are read once.
        share_prefixes: whether equal beginnings are read once too, where that is less work.
        width: tokens that share a row of trees, if no episode is longer; attention within a row costs its square.
        limit: the longest row of trees that the model can read, at least as long as any episode; None for any.
    """
    ids, lengths, steps, columns = _sequences(rollout)
    rows, actions = steps[:, 0], rollout.actions[rollout.mask]
    if (merge_rows or share_prefixes) and len(columns):
        beyond = torch.arange(ids.shape[1], device=ids.device) >= lengths[:, None]
        chains, chain_of_row = ids.masked_fill(beyond, -1).unique(dim=0, return_inverse=True)  # sorted
        if share_prefixes:
            forest = _grow(chains, width, limit)
            if forest is not None:
                return _edges(*forest[:3], forest[3][chain_of_row[rows], columns], actions, merge=True)
        if merge_rows:
            ids, rows = chains.clamp(min=0), chain_of_row[rows]
    return _edges(ids, None, None, rows * ids.shape[1] + columns, actions, merge_rows)


def _sequences(rollout: Rollout) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Join prompts and actions.

    Returns:
        ids: what the model reads [N, W], right-padded; the last action is never read.
        lengths: tokens of each row that are read [N], 0 for an episode without a step.
        steps: (episode, step) of every existing action [M, 2].
        columns: the column of `ids` whose output predicts that action [M].
    """
    assert isinstance(rollout.observations, dict)
    tokens, prompt_lengths = rollout.observations["tokens"], rollout.observations["length"]
    steps = rollout.mask.nonzero()  # [M, 2]
    columns = prompt_lengths[steps[:, 0]] + steps[:, 1] - 1
    ids = torch.nn.functional.pad(tokens, (0, 1))  # an episode cut off may fill the context
    ids[steps[:, 0], columns + 1] = rollout.actions[rollout.mask]
    width = int(columns.max()) + 1 if len(columns) else 1
    taken = rollout.mask.sum(1)
    return ids[:, :width], (prompt_lengths + taken - 1).where(taken > 0, 0), steps, columns


def _edges(
    ids: torch.Tensor,
    positions: torch.Tensor | None,
    visible: torch.Tensor | None,
    node_of_step: torch.Tensor,
    actions: torch.Tensor,
    merge: bool,
) -> Reading:
    """Let equal steps be one edge."""
    if not merge or len(actions) == 0:
        edge_of_step = torch.arange(len(actions), device=ids.device)
        return Reading(ids, positions, visible, node_of_step, actions, edge_of_step)
    vocab = int(actions.max()) + 1
    edges, edge_of_step = (node_of_step * vocab + actions).unique(return_inverse=True)
    return Reading(ids, positions, visible, edges // vocab, edges % vocab, edge_of_step)


def tree_of_two(contexts: torch.Tensor, fork: int) -> Reading:
    """Return how two contexts [2, L] that part at column `fork` are read as one tree; every token of both is a node."""
    used = contexts.new_tensor([2 * contexts.shape[1] - fork])
    ids, positions, visible, place = _lay_out(contexts, used.new_zeros(2), used.new_tensor([0, fork]), used)
    return _edges(ids, positions, visible, place.flatten(), contexts.flatten(), merge=False)


def _grow(
    chains: torch.Tensor, width: int, limit: int | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Pack sorted chains into rows of trees; None where that would be no less work than a row for each.

    A chain owns the tokens after the beginning it shares with the chain before it; the rest it finds there.

    Args:
        chains: distinct and sorted, -1 beyond their ends [C, L].
        width: of a row, unless a chain is longer.
        limit: of a row, at least the longest chain; None for any.

    Returns:
        ids [R, W], positions [R, W], visible [R, 1, W, W], and the place of each chain's tokens in `ids`,
        flattened [C, L].
    """
    count, longest = chains.shape
    same = (chains[1:] == chains[:-1]) & (chains[1:] >= 0)
    shared = torch.nn.functional.pad(same.cumprod(1).sum(1), (1, 0))  # [C]
    room = max(width, 2 * longest) if limit is None else min(limit, max(width, 2 * longest))
    row, here, used = _fill((chains >= 0).sum(1).tolist(), shared.tolist(), room)
    if _work(row[-1] + 1, max(used), width) > WORTH_IT * _work(count, longest, width):
        return None
    return _lay_out(chains, chains.new_tensor(row), chains.new_tensor(here), chains.new_tensor(used))


def _work(rows: int, length: int, width: int) -> float:
    """Return the cost of rows, in tokens: attention doubles that of a token in rows of about 6 widths."""
    return rows * length * (1 + length / (6 * width))


def _lay_out(
    chains: torch.Tensor, row: torch.Tensor, shared: torch.Tensor, used: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Put sorted chains into rows of trees.

    Args:
        chains: [C, L], -1 beyond their ends.
        row: of each chain [C].
        shared: how many tokens it shares with the chain before it, there [C].
        used: tokens of each row [R].

    Returns:
        As `_grow`.
    """
    (count, longest), (rows, wide) = chains.shape, (len(used), int(used.max()))
    number = torch.arange(count, device=chains.device)[:, None]  # [C, 1]
    column = torch.arange(longest, device=chains.device).expand(count, -1)  # [C, L]
    owned = (column >= shared[:, None]) & (chains >= 0)  # [C, L]
    owner = number.where(column >= shared[:, None], 0).cummax(0).values  # the chain that owns each token [C, L]
    order = owned.flatten().cumsum(0).view(count, longest) - 1  # of the owned tokens, row by row
    place = row[:, None] * wide + order - (used.cumsum(0) - used)[row][:, None]  # in the rows, flattened

    def arrange(values: torch.Tensor) -> torch.Tensor:
        out = values.new_zeros(rows * wide)
        out[place[owned]] = values.expand_as(owned)[owned]
        return out.view(rows, wide)

    depth, chain = arrange(column), arrange(number)
    ancestor = owner[chain[:, :, None], depth[:, None, :]] == chain[:, None, :]
    visible = ancestor & (depth[:, None, :] <= depth[:, :, None]) & arrange(owned)[:, None, :]
    visible |= torch.eye(wide, dtype=torch.bool, device=chains.device)  # padding sees something: no 0 / 0
    return arrange(chains), depth, visible[:, None], place.gather(0, owner)


def _fill(lengths: list[int], shared: list[int], width: int) -> tuple[list[int], list[int], list[int]]:
    """Put chains into rows, one after the other; a row's first chain shares nothing.

    Returns:
        The row of each chain, how much it shares there, and how many tokens each row holds.
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
