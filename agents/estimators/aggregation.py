"""How steps are added up: functions of the mask to weights [N, T]; the loss is -Σ weights · surrogate.

The denominator is fixed here, once per update, before any split: micro-batches, padding and row order cannot change
the gradient.
"""

from __future__ import annotations

import torch

from ..devices import widest


def sequence_sum(mask: torch.Tensor) -> torch.Tensor:
    """Sum the steps of each episode and average over episodes: w = 1/N where a step counts.

    Args:
        mask: steps that count, bool [N, T]; an episode without any does not count in N.

    Returns:
        Weights [N, T] in double precision, 0 in masked cells.
    """
    episodes = mask.any(1).sum().clamp(min=1)
    return mask.to(widest(mask.device)) / episodes


def sequence_mean(mask: torch.Tensor) -> torch.Tensor:
    """Average the steps of each episode, then average over episodes: w = 1/(N T_i) where a step counts.

    A step of a long episode weighs less than one of a short episode: long wrong answers are punished less, per token,
    than short ones (Liu et al. 2025, arXiv:2503.20783, section 3.1).

    Args:
        mask: steps that count, bool [N, T]; an episode without any does not count in N.

    Returns:
        Weights [N, T] in double precision, 0 in masked cells.
    """
    return sequence_sum(mask) / mask.sum(1, keepdim=True).clamp(min=1)


def constant_length(mask: torch.Tensor, length: int) -> torch.Tensor:
    """Sum the steps of each episode, divide by a constant, and average over episodes: w = 1/(N L) where a step counts.

    Args:
        mask: steps that count, bool [N, T]; an episode without any does not count in N.
        length: L, the same for every update, such as the length of the longest possible episode.

    Returns:
        Weights [N, T] in double precision, 0 in masked cells.
    """
    return sequence_sum(mask) / length


def token_mean(mask: torch.Tensor) -> torch.Tensor:
    """Average over all steps of all episodes: w = 1/Σ_i T_i where a step counts.

    Args:
        mask: steps that count, bool [N, T].

    Returns:
        Weights [N, T] in double precision, 0 in masked cells.
    """
    return mask.to(widest(mask.device)) / mask.sum().clamp(min=1)
