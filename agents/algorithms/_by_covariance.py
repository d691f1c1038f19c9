"""The choice of steps by the covariance of log-probability and advantage, shared by clip-cov and kl-cov."""

from __future__ import annotations

import torch
from gymnasium.vector import VectorEnv
from typing_extensions import override

from rlenv._settings import setting

from ..estimators import aggregation, gates
from ..rollout import Batch, Rollout
from ..training.proximal import PassesAgent
from ._group_relative import SCALE, Scale, group_relative


class CovarianceAgent(PassesAgent):
    """An agent that treats steps with log-probability and advantage both far above the mean differently.

    They are chosen once per rollout, among steps with an advantage, by the policy before the update: the extra
    "chosen" of the batch, bool [N, T].
    """

    default_group_size = 4
    compares_groups = True
    advantages = group_relative
    weights = staticmethod(aggregation.token_mean)

    scale: Scale = SCALE

    share: float = setting(
        default=2e-4, help="How many steps are chosen, of all of the rollout; at least one.", above=0, high=1
    )
    min_covariance: float = setting(default=0.0, help="Steps are chosen above this (log π - mean)(A - mean).")
    max_covariance: float | None = setting(
        default=None, help="Steps are chosen below this one.", more="None for no bound."
    )

    @override
    def setup(self, env: VectorEnv, group_size: int | None) -> None:
        super().setup(env, group_size)
        if self.max_covariance is not None and self.min_covariance >= self.max_covariance:
            raise ValueError(
                f"min_covariance={self.min_covariance:g} is not below max_covariance={self.max_covariance:g}, so no "
                "step is ever chosen; lower min_covariance, or raise max_covariance (None for no bound)"
            )

    def chosen(self, batch: Batch) -> torch.Tensor:
        """Return the steps with the largest covariance in its range, bool [N, T]."""
        steps = batch.learnable
        values = gates.covariance(batch.log_probs, batch.advantages, steps)
        candidates = steps & (batch.advantages != 0) & (values > self.min_covariance)
        if self.max_covariance is not None:
            candidates &= values < self.max_covariance
        return gates.largest(values, candidates, max(1, int(self.share * int(steps.sum()))))

    @override
    def prepare(self, rollout: Rollout) -> Batch:
        batch = super().prepare(rollout)
        return batch.with_extras(chosen=self.chosen(batch))
