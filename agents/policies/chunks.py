"""Functions over rows too wide to be kept: a chunk at a time, computed again for the gradient."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils.checkpoint import checkpoint

ELEMENTS = 2**25  # of a chunk; 128 MiB in float32


def by_chunks(
    function: Callable[..., tuple[torch.Tensor, ...]], width: int, *inputs: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return `function(*inputs)`, whose intermediate results are `width` wide, without holding those of all rows.

    Args:
        function: maps inputs [E, ...] to outputs [E, ...], each row by itself.
        width: elements a row of the intermediate results, such as the size of the vocabulary.
        inputs: [E, ...] each.

    Returns:
        The outputs of all rows; up to `ELEMENTS` elements are computed at once, and beyond that a chunk's intermediate
        results are dropped and computed again in the backward pass.
    """
    rows = max(ELEMENTS // width, 1)
    if len(inputs[0]) <= rows:
        return function(*inputs)
    chunks = zip(*(x.split(rows) for x in inputs), strict=True)
    parts = [checkpoint(function, *chunk, use_reentrant=False) for chunk in chunks]
    return tuple(torch.cat(columns) for columns in zip(*parts, strict=True))
