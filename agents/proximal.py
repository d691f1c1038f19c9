"""What agents with a clipped ratio share: several passes over a rollout, each step of it kept near the sampler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from .agent import Agent
from .checks import check_count, check_number
from .estimators import losses
from .rollout import Rollout


class ProximalAgent(Agent):
    """An agent that takes several optimizer steps on a rollout, with the clipped ratio as surrogate.

    A pass visits every episode once, in `num_minibatches` random parts of whole episodes; weights are multiplied by
    the number of parts, so that each part's gradient estimates that of the whole rollout. With one pass and one part
    the ratio is 1 and this is the policy gradient.

    Args:
        policy: see `Agent`.
        env: see `Agent`.
        clip_range: the ratio may fall to 1 - clip_range, above 0 and below 1.
        clip_range_high: the ratio may rise to 1 + clip_range_high; None: clip_range.
        num_epochs: passes over a rollout. None: the algorithm's default, else 1.
        num_minibatches: optimizer steps a pass, at most the episodes there are. None: the same.
        kwargs: see `Agent`.

    Raises:
        ValueError: for a hyper-parameter out of range, and as `Agent` says.
    """

    def __init__(
        self,
        policy: Any,
        env: Any,
        *,
        clip_range: float = 0.2,
        clip_range_high: float | None = None,
        num_epochs: int | None = None,
        num_minibatches: int | None = None,
        **kwargs: Any,
    ) -> None:
        high = clip_range if clip_range_high is None else clip_range_high
        self.clip_range = check_number("clip_range", clip_range, 0.0, 1.0, above=True, below=True)
        self.clip_range_high = check_number("clip_range_high", high, 0.0, 1.0, above=True, below=True)
        if num_epochs is not None:
            check_count("num_epochs", num_epochs)
        if num_minibatches is not None:
            check_count("num_minibatches", num_minibatches)
        super().__init__(policy, env, **kwargs)
        self.num_epochs = check_count("num_epochs", self.chosen("num_epochs", num_epochs) or 1)
        self.num_minibatches = check_count("num_minibatches", self.chosen("num_minibatches", num_minibatches) or 1)
        self.settings |= {
            name: getattr(self, name) for name in ("clip_range", "clip_range_high", "num_epochs", "num_minibatches")
        }

    def surrogate(self, log_probs: torch.Tensor, batch: Rollout) -> torch.Tensor:
        """Return min(ρ A, clip(ρ) A) [N, T]."""
        assert batch.advantages is not None
        return losses.clipped_ratio(log_probs, batch.log_probs, batch.advantages, self.clip_range, self.clip_range_high)

    def batches(self, rollout: Rollout) -> Iterator[Rollout]:
        """Yield every part of every pass."""
        parts = min(self.num_minibatches, len(rollout))
        for _ in range(self.num_epochs):
            if parts == 1:
                yield rollout
                continue
            order = torch.randperm(len(rollout), generator=self.generator, device=rollout.mask.device)
            for rows in order.tensor_split(parts):
                part = rollout.select(rows)
                assert part.weights is not None
                yield replace(part, weights=part.weights * parts)

    @torch.no_grad()
    def diagnose(self, log_probs: torch.Tensor, batch: Rollout) -> dict[str, float]:
        """Add on how many steps the ratio is clipped, so that they have no gradient."""
        assert batch.advantages is not None and batch.weights is not None
        clipped = losses.is_clipped(log_probs, batch.log_probs, batch.advantages, self.clip_range, self.clip_range_high)
        return super().diagnose(log_probs, batch) | {"train/clip_fraction": float(clipped[batch.learnable].sum())}
