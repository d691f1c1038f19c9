"""REINFORCE leave-one-out."""

from __future__ import annotations

import torch
from typing_extensions import override

from ..estimators import aggregation, baselines, returns
from ..rollout import Rollout
from ..training.agent import Agent


class RLOO(Agent):
    """REINFORCE leave-one-out (Kool et al. 2019; Ahmadian et al. 2024, arXiv:2402.14740).

        A_i = R_i - 1/(K-1) Σ_{j≠i} R_j        L = - 1/N Σ_i Σ_t A_i log π(a_{i,t} | s_{i,t})

    Unbiased for the expected return. A KL penalty in the reward is part of R, before the mean of the others is taken:
    subtracted after it, it would have no baseline. The whole episode is one action, so A_i is the advantage of each of
    its steps. If none of the others has a verdict, the baseline is 0.

    `group_size` (K) is at least 2. Without groups, the rollout is one group.
    """

    name = "rloo"
    default_group_size = 4
    compares_groups = True
    weights = staticmethod(aggregation.sequence_sum)

    @override
    def advantages(self, rollout: Rollout) -> torch.Tensor:
        gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
        return gains - baselines.leave_one_out(gains, rollout)
