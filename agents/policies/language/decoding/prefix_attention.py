"""Decode steps that read a beginning shared by several rows once for all of them, not once per row.

A step's attention mostly waits for memory: it reads every key and value of every row for one query. The rows of a
prompt hold the same first columns, their stem. Its scores for all these rows are one product with one copy of the stem:

    softmax([q K_stemᵀ, q K_ownᵀ] √D⁻¹) [V_stem; V_own]
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .kv_cache import SlotCache

WORTH_IT = 1024  # columns that a step need not read in all rows; fewer take less time than the additional operations


class Stems:
    """The stems of the running contexts; a row's group never changes, but which rows there are does.

    Args:
        cache: its rows 0 to N - 1 hold the prompts of the N groups.
        num_groups: N.
        width: of each stem: fewer columns than any context has.
    """

    def __init__(self, cache: SlotCache, num_groups: int, width: int) -> None:
        self.num_groups, self.width = num_groups, width
        self.layers = [
            tuple(buffer[:num_groups, :, :width].clone().flatten(0, 1) for buffer in (layer.keys, layer.values))
            for layer in cache.layers
        ]

    def arrange(self, group_of_row: torch.Tensor) -> None:
        """Set the group of each row [R], 0 to N - 1."""
        sizes = group_of_row.bincount(minlength=self.num_groups)
        order, count = group_of_row.argsort(stable=True), torch.arange(len(group_of_row))
        number = torch.empty_like(order)  # of each row in its group
        number[order] = count - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
        self.shape = self.num_groups, int(sizes.max())  # N, S
        self.place = group_of_row * self.shape[1] + number  # of each row among those of all groups [R]
        self.order = order.new_zeros(self.num_groups * self.shape[1])  # the row at each place; any beyond a group's end
        self.order[self.place] = count

    def of_layer(self, index: int) -> Stem:
        """Return what the attention of a layer needs."""
        return Stem(self, *self.layers[index])


@dataclass(frozen=True)
class Stem:
    """The keys and values of one layer [N · H, P, D]."""

    stems: Stems
    keys: torch.Tensor
    values: torch.Tensor

    def attention(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, scale: float
    ) -> torch.Tensor:
        """Return softmax(q kᵀ scale) v [R, H, G, D].

        Args:
            q: one token's queries per row [R, H, G, D].
            keys: of all columns of the window [R, H, W, D]; those of the stem are not read.
            values: likewise.
            mask: added to the scores [R, 1, 1, W]; None for no mask.
            scale: of the scores.
        """
        own, q = slice(self.stems.width, None), q * scale
        shared = self._by_row(torch.bmm(self._grouped(q), self.keys.mT), q)
        apart = torch.bmm(q.flatten(0, 1), keys[:, :, own].flatten(0, 1).mT).view(*q.shape[:3], -1)
        scores = torch.cat([shared, apart], -1)
        weights = (scores if mask is None else scores.add_(mask)).softmax(-1)
        out = torch.bmm(weights[..., own].flatten(0, 1), values[:, :, own].flatten(0, 1)).view_as(q)
        shared = torch.bmm(self._grouped(weights[..., : self.stems.width]), self.values)
        return out.add_(self._by_row(shared, q))

    def _grouped(self, x: torch.Tensor) -> torch.Tensor:
        """Return x [R, H, G, ...] by group [N · H, S · G, ...]."""
        rows = x.index_select(0, self.stems.order).view(*self.stems.shape, *x.shape[1:])
        return rows.transpose(1, 2).flatten(2, 3).flatten(0, 1)

    def _by_row(self, x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        """Return x [N · H, S · G, ...] by row [R, H, G, ...], given queries of this shape."""
        groups, most = self.stems.shape
        rows = x.view(groups, q.shape[1], most, q.shape[2], -1).transpose(1, 2).flatten(0, 1)
        return rows.index_select(0, self.stems.place)
