"""Standardized returns, shared by the agents that compare the episodes of a prompt."""

from __future__ import annotations

from typing import Any, Literal

import torch

from rlenv._settings import setting

from ..estimators import returns, scaling
from ..rollout import Rollout

Scale = Literal["group", "batch"]
SCALE: Any = setting(
    default="group",
    help="Which standard deviation the advantages are divided by.",
    more='With "batch", that of all rewards of the rollout ("Lite PPO", arXiv:2508.08221; "ScaleRL", '
    "arXiv:2510.13786): then easy and hard prompts do not gain weight, but for a common factor.",
)


def group_relative(self: Any, rollout: Rollout) -> torch.Tensor:
    """Return the advantages of an agent with the setting `scale`: the returns of a group, standardized.

        A_i = (R_i - mean(R)) / (std(R) + 1e-4)

    `group_size` is at least 2. Without groups, the rollout is one group.
    """
    gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
    return scaling.standardize_groups(gains, rollout, self.scale)
