"""Choosing tokens out of a large vocabulary, on a GPU in parts that stay in its cache.

The distribution of 1,024 slots over 152,000 words takes 620 MB, and every operation on it moves all of that. In parts
of a few rows, only logits and noise come from memory. On a CPU, new memory for every part costs what the cache saves.
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
    """Return what `choose` returns of `distribution(logits)`, with the same random numbers.

    Args:
        distribution: maps logits [B, V'] to log-probabilities [B, V], each row independently.
        logits: [B, V'], V or more.
        vocab_size: V.
        deterministic: whether to choose the most likely token.
        source: of randomness; see `sample_categorical`.
    """
    rows = max(CACHED.get(logits.device.type, len(logits) * vocab_size) // vocab_size, 1)
    if len(logits) <= rows:
        return choose(distribution(logits), deterministic, source)
    if not deterministic and not isinstance(source, torch.Tensor):  # drawn at once, as `choose` would
        precision = torch.promote_types(logits.dtype, torch.float32)
        source = logits.new_empty(len(logits), vocab_size, dtype=precision).exponential_(generator=source)
    noise = source.split(rows) if isinstance(source, torch.Tensor) else [None] * len(logits)
    parts = zip(logits.split(rows), noise, strict=False)
    chosen = [choose(distribution(part), deterministic, drawn) for part, drawn in parts]
    actions, log_probs = (torch.cat(each) for each in zip(*chosen, strict=True))
    return actions, log_probs
