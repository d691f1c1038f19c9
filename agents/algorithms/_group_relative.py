"""Standardized returns, shared by the agents that compare the episodes of a prompt."""

from __future__ import annotations

from typing import Literal

import torch
from typing_extensions import override

from rlenv._settings import setting

from ..estimators import returns, scaling
from ..rollout import Rollout
from ..training.agent import Agent


class GroupRelative(Agent):
    """An agent whose advantages are the returns of a group, standardized.

        A_i = (R_i - mean(R)) / (std(R) + 1e-4)

    `group_size` is at least 2. Without groups, the rollout is one group.
    """

    default_group_size = 4
    compares_groups = True

    scale: Literal["group", "batch"] = setting(
        default="group",
        help="Which standard deviation the advantages are divided by.",
        more='With "batch", that of all rewards of the rollout ("Lite PPO", arXiv:2508.08221; "ScaleRL", '
        "arXiv:2510.13786): then easy and hard prompts do not gain weight, but for a common factor.",
    )

    @override
    def advantages(self, rollout: Rollout) -> torch.Tensor:
        gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
        return scaling.standardize_groups(gains, rollout, self.scale)
