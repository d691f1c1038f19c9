"""What agents with a clipped ratio share: several passes over a rollout, each step of it kept near the sampler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Unpack

import torch
from typing_extensions import override

from ..agent import Agent
from ..checks import check_count, check_number, check_optional_count
from ..estimators import losses
from ..metrics import Reduce
from ..rollout import Batch
from ..settings import AgentSettings


class PassesSettings(AgentSettings, total=False):
    """Keyword arguments of `ProximalAgent` without `clip_range_high`, for subclasses with another default."""

    clip_range: float
    num_epochs: int | None
    num_minibatches: int | None


class ProximalSettings(PassesSettings, total=False):
    """Keyword arguments of `ProximalAgent`."""

    clip_range_high: float | None


class ProximalAgent(Agent):
    """An agent that takes several optimizer steps on a rollout, with the clipped ratio as surrogate.

    A pass visits every episode once, in `num_minibatches` random parts of whole episodes. Weights are multiplied by the
    number of parts, so that each part's gradient estimates that of the whole rollout. With one pass and one part the
    ratio is 1, and the gradient is the policy gradient. `train/clip_fraction` is the share of steps whose ratio is
    clipped, so that they have no gradient.

    Args:
        clip_range: the ratio may fall to 1 - clip_range, above 0 and below 1.
        clip_range_high: the ratio may rise to 1 + clip_range_high; None: clip_range.
        num_epochs: passes over a rollout. None: 1, except for PPO (`defaults.py`).
        num_minibatches: optimizer steps per pass, at most the number of episodes. None: the same.
    """

    reductions = {"train/clip_fraction": Reduce.MEAN}

    def __init__(
        self,
        policy: Any,
        env: Any,
        *,
        clip_range: float = 0.2,
        clip_range_high: float | None = None,
        num_epochs: int | None = None,
        num_minibatches: int | None = None,
        **settings: Unpack[AgentSettings],
    ) -> None:
        high = clip_range if clip_range_high is None else clip_range_high
        self.clip_range = check_number("clip_range", clip_range, 0.0, 1.0, above=True, below=True)
        self.clip_range_high = check_number("clip_range_high", high, 0.0, 1.0, above=True, below=True)
        check_optional_count("num_epochs", num_epochs)
        check_optional_count("num_minibatches", num_minibatches)
        super().__init__(policy, env, **settings)
        self.num_epochs = check_count("num_epochs", self.or_default("num_epochs", num_epochs))
        self.num_minibatches = check_count("num_minibatches", self.or_default("num_minibatches", num_minibatches))

    @override
    def surrogate(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        return losses.clipped_ratio(log_probs, batch.log_probs, batch.advantages, self.clip_range, self.clip_range_high)

    @override
    def batches(self, batch: Batch) -> Iterator[Batch]:
        parts = min(self.num_minibatches, len(batch))
        for _ in range(self.num_epochs):
            if parts == 1:
                yield batch
                continue
            order = torch.randperm(len(batch), generator=self.generator, device=batch.mask.device)
            for rows in order.tensor_split(parts):
                part = batch.select(rows)
                yield replace(part, weights=part.weights * parts)

    @torch.no_grad()
    @override
    def diagnose(self, log_probs: torch.Tensor, batch: Batch) -> dict[str, float]:
        clipped = losses.is_clipped(log_probs, batch.log_probs, batch.advantages, self.clip_range, self.clip_range_high)
        return super().diagnose(log_probs, batch) | {"train/clip_fraction": float(clipped[batch.learnable].sum())}
