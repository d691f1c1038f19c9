"""What agents with a ratio share: several passes over a rollout, each step of it kept near the policy before them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from typing_extensions import override

from ..checks import check_number
from ..estimators import losses
from ..estimators.mismatch import off_policy_mask
from ..rollout import Batch
from .agent import Agent
from .metrics import Reduce
from .settings import PassesSettings, ProximalSettings


class PassesAgent(Agent, PassesSettings):
    """An agent that takes several optimizer steps on a rollout.

    A pass visits every episode once, in `num_minibatches` random parts of whole episodes; PPO's may be parts of steps.
    Weights are multiplied by the number of parts, so that each part's gradient estimates that of the whole rollout.
    With one pass and one part the ratio is 1, and the gradient is the policy gradient. `train/clip_fraction` is the
    share of steps whose ratio is clipped, as the agent means it, or that `off_policy_mask` leaves out.
    """

    reductions = {"train/clip_fraction": Reduce.MEAN}

    def is_clipped(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the steps whose ratio is clipped, bool [N, T]; masked cells may hold anything."""
        raise NotImplementedError

    def kept(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor | None:
        """Return the steps that `off_policy_mask` leaves in the loss, bool [N, T]; None for all."""
        if self.off_policy_mask is None:
            return None
        acting = batch.log_probs if batch.acting_log_probs is None else batch.acting_log_probs
        return off_policy_mask(log_probs, acting, batch.advantages, batch.learnable, self.off_policy_mask)

    @override
    def correction(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor | None:
        weights, kept = super().correction(log_probs, batch), self.kept(log_probs, batch)
        if kept is None:
            return weights
        return kept.to(log_probs) if weights is None else weights * kept

    @override
    def batches(self, batch: Batch) -> Iterator[Batch]:
        parts = min(self.num_minibatches, len(batch))
        for _ in range(self.num_epochs):
            if parts == 1:
                yield batch
                continue
            order = torch.randperm(len(batch), generator=self.generators.order, device=batch.mask.device)
            for rows in order.tensor_split(parts):
                part = batch.select(rows)
                yield replace(part, weights=part.weights * parts)

    @torch.no_grad()
    @override
    def diagnose(self, log_probs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        clipped, kept = self.is_clipped(log_probs, batch), self.kept(log_probs, batch)
        stopped = (clipped if kept is None else clipped | ~kept) & batch.learnable
        return super().diagnose(log_probs, batch) | {"train/clip_fraction": stopped.sum()}


class ProximalAgent(PassesAgent, ProximalSettings):
    """An agent that takes several optimizer steps on a rollout, with the clipped ratio as surrogate.

    A clipped step has no gradient.
    """

    @override
    def use_settings(self) -> None:
        super().use_settings()
        if self.clip_range_high is None:
            self.clip_range_high = self.clip_range
        if self.max_ratio is not None:
            high = self.clip_range_high
            check_number("max_ratio", self.max_ratio, low=1.0 + (high(1.0) if callable(high) else high), above=True)

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
