"""REINFORCE, without a baseline."""

from __future__ import annotations

import torch

from ..agent import Agent
from ..estimators import aggregation, losses, returns
from ..rollout import Rollout


class Reinforce(Agent):
    """Episodic REINFORCE (Williams 1992, "Simple statistical gradient-following algorithms", section 5).

        A_{i,t} = R_i        L = - 1/N Σ_i Σ_t A_{i,t} log π(a_{i,t} | s_{i,t})

    Unbiased for the expected (discounted) return, with the highest variance of the family.

    Args: those of `Agent`.
    """

    defaults = {"control": {"gamma": 1.0, "learning_rate": 3e-3}}
    weights = staticmethod(aggregation.sequence_sum)

    def advantages(self, rollout: Rollout) -> torch.Tensor:
        """Return R_i at every step [N, T]."""
        return returns.episode_return(rollout.rewards, rollout.mask, self.gamma)

    def surrogate(self, log_probs: torch.Tensor, batch: Rollout) -> torch.Tensor:
        """Return A log π [N, T]."""
        assert batch.advantages is not None
        return losses.policy_gradient(log_probs, batch.advantages)
