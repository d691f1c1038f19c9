"""Choosing tokens out of a large vocabulary, on a GPU in parts that stay in its cache.

The distribution of 1,024 slots over 152,000 words takes 620 MB, and every operation on it moves all of that. In parts
of a few rows, only logits come from memory. On a CPU, new memory for every part costs what the cache saves.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...choosing import Source, choose

CACHED = {"cuda": 2**21}  # elements of a part, by type of device; three parts in float32 fit into 50 MB of cache


def choose_in_parts(
    distribution: Callable[[torch.Tensor], torch.Tensor],
    logits: torch.Tensor,
    vocab_size: int,
    deterministic: bool,
    source: Source,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `choose` returns of `distribution(logits)` and one number for each row.

    Args:
        distribution: maps logits [B, V'] to log-probabilities [B, V], each row independently.
        logits: [B, V'], V or more.
        vocab_size: V.
        deterministic: whether to choose the most likely token.
        source: numbers in [0, 1), float64 [B], or a generator that draws them.
    """
    if not deterministic and not isinstance(source, torch.Tensor):
        source = torch.rand(len(logits), dtype=torch.float64, generator=source, device=logits.device)
    rows = max(CACHED.get(logits.device.type, len(logits) * vocab_size) // vocab_size, 1)
    if len(logits) <= rows:
        return choose(distribution(logits), deterministic, source)
    numbers = source.split(rows) if isinstance(source, torch.Tensor) else [None] * len(logits)
    parts = zip(logits.split(rows), numbers, strict=False)
    chosen = [choose(distribution(part), deterministic, drawn) for part, drawn in parts]
    actions, log_probs = (torch.cat(each) for each in zip(*chosen, strict=True))
    return actions, log_probs
