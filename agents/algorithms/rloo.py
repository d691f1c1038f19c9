"""REINFORCE leave-one-out."""

from __future__ import annotations

import torch

from ..agent import Agent
from ..estimators import aggregation, baselines, losses, returns
from ..rollout import Rollout


class RLOO(Agent):
    """REINFORCE leave-one-out (Kool et al. 2019; Ahmadian et al. 2024, arXiv:2402.14740).

        A_i = R_i - 1/(K-1) Σ_{j≠i} R_j        L = - 1/N Σ_i Σ_t A_i log π(a_{i,t} | s_{i,t})

    Unbiased for the expected return. A KL anchor in the reward is part of R, before the others' mean is taken: charged
    after it, it would have no baseline. The whole episode is one action, so A_i stands at each of its steps. An episode
    whose others all failed to get a verdict has no baseline.

    Args: those of `Agent`; `group_size` (K) is at least 2. Without groups, the rollout is one group.
    """

    default_group_size = 4
    compares_groups = True
    weights = staticmethod(aggregation.sequence_sum)

    def advantages(self, rollout: Rollout) -> torch.Tensor:
        """Return R_i less the mean of the others, at every step [N, T]."""
        gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
        return gains - baselines.leave_one_out(gains, rollout)

    def surrogate(self, log_probs: torch.Tensor, batch: Rollout) -> torch.Tensor:
        """Return A log π [N, T]."""
        assert batch.advantages is not None
        return losses.policy_gradient(log_probs, batch.advantages)
