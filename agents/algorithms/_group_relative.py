"""What agents share that compare the episodes of a prompt: standardized returns."""

from __future__ import annotations

import torch
from typing_extensions import override

from ..estimators import returns, scaling
from ..rollout import Rollout
from ..training.agent import Agent
from .settings import GroupRelativeSettings


class GroupRelative(Agent, GroupRelativeSettings):
    """An agent whose advantages are the returns of a group, standardized.

        A_i = (R_i - mean(R)) / (std(R) + 1e-4)

    `group_size` is at least 2. Without groups, the rollout is one group.
    """

    default_group_size = 4
    compares_groups = True

    @override
    def advantages(self, rollout: Rollout) -> torch.Tensor:
        gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
        return scaling.standardize_groups(gains, rollout, self.scale)
