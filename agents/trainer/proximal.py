"""What agents with a ratio share: several passes over a rollout, each step of it kept near the sampler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Unpack

import torch
from typing_extensions import override

from ..core.checks import Scheduled, check_count, check_number, check_optional_count, check_schedule
from ..core.rollout import Batch
from ..core.settings import AgentSettings
from ..estimators import losses
from ..learner.metrics import Reduce
from .agent import Agent


class PassesSettings(AgentSettings, total=False):
    """Keyword arguments of `PassesAgent`."""

    num_epochs: int | None
    num_minibatches: int | None


class ClipSettings(PassesSettings, total=False):
    """Keyword arguments of `ProximalAgent` without `clip_range_high`, for subclasses with another default."""

    clip_range: Scheduled
    max_ratio: float | None


class ProximalSettings(ClipSettings, total=False):
    """Keyword arguments of `ProximalAgent`."""

    clip_range_high: Scheduled | None


class PassesAgent(Agent):
    """An agent that takes several optimizer steps on a rollout.

    A pass visits every episode once, in `num_minibatches` random parts of whole episodes; PPO's may be parts of steps.
    Weights are multiplied by the number of parts, so that each part's gradient estimates that of the whole rollout.
    With one pass and one part the ratio is 1, and the gradient is the policy gradient. `train/clip_fraction` is the
    share of steps whose ratio is clipped.

    Args:
        num_epochs: passes over a rollout. None: 1, except for PPO (`defaults.py`).
        num_minibatches: optimizer steps per pass, at most the number of episodes (or steps). None: as for
            `num_epochs`.
    """

    reductions = {"train/clip_fraction": Reduce.MEAN}

    def __init__(
        self,
        policy: Any,
        env: Any,
        *,
        num_epochs: int | None = None,
        num_minibatches: int | None = None,
        **settings: Unpack[AgentSettings],
    ) -> None:
        check_optional_count("num_epochs", num_epochs)
        check_optional_count("num_minibatches", num_minibatches)
        super().__init__(policy, env, **settings)
        self.num_epochs = check_count("num_epochs", self.or_default("num_epochs", num_epochs))
        self.num_minibatches = check_count("num_minibatches", self.or_default("num_minibatches", num_minibatches))

    def is_clipped(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the steps whose ratio is clipped, bool [N, T]; masked cells may hold anything."""
        raise NotImplementedError

    @override
    def batches(self, batch: Batch) -> Iterator[Batch]:
        parts = min(self.num_minibatches, len(batch))
        for _ in range(self.num_epochs):
            if parts == 1:
                yield batch
                continue
            order = torch.randperm(len(batch), generator=self.order_generator, device=batch.mask.device)
            for rows in order.tensor_split(parts):
                part = batch.select(rows)
                yield replace(part, weights=part.weights * parts)

    @torch.no_grad()
    @override
    def diagnose(self, log_probs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        clipped = self.is_clipped(log_probs, batch) & batch.learnable
        return super().diagnose(log_probs, batch) | {"train/clip_fraction": clipped.sum()}


class ProximalAgent(PassesAgent):
    """An agent that takes several optimizer steps on a rollout, with the clipped ratio as surrogate.

    A clipped step has no gradient.

    Args:
        clip_range: the ratio may fall to 1 - clip_range, above 0 and below 1; a number or a function of the remaining
            progress (1 to 0), like the two below.
        clip_range_high: the ratio may rise to 1 + clip_range_high; None: clip_range.
        max_ratio: δ, above 1 + clip_range_high: the ratio of an action with a negative advantage counts as δ at most,
            and has no gradient beyond ("dual clip", Ye et al. 2020, arXiv:1912.09729, who take 3; "two-sided clipping",
            INTELLECT-2, arXiv:2505.07291, who take 4). None for no bound.
        settings: those of `PassesAgent`.
    """

    def __init__(
        self,
        policy: Any,
        env: Any,
        *,
        clip_range: Scheduled = 0.2,
        clip_range_high: Scheduled | None = None,
        max_ratio: float | None = None,
        **settings: Unpack[PassesSettings],
    ) -> None:
        high = clip_range if clip_range_high is None else clip_range_high
        inside = {"low": 0.0, "high": 1.0, "above": True, "below": True}
        self.clip_range = check_schedule("clip_range", clip_range, **inside)
        self.clip_range_high = check_schedule("clip_range_high", high, **inside)
        if max_ratio is not None:
            check_number("max_ratio", max_ratio, low=1.0 + (high(1.0) if callable(high) else high), above=True)
        self.max_ratio = max_ratio
        super().__init__(policy, env, **settings)

    def compared(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return what the ratio compares [N, T]: by default, the log-probability of each step."""
        return log_probs

    @override
    def surrogate(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        return losses.clipped_ratio(*self._clipping(log_probs, batch))

    @override
    def is_clipped(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        return losses.is_clipped(*self._clipping(log_probs, batch))

    def _clipping(self, log_probs: torch.Tensor, batch: Batch) -> tuple[Any, ...]:
        """Return the arguments of `losses.clipped_ratio`."""
        new, old = self.compared(log_probs, batch), self.compared(batch.log_probs, batch)
        return new, old, batch.advantages, self.present("clip_range"), self.present("clip_range_high"), self.max_ratio
