"""Advantage actor-critic."""

from __future__ import annotations

import torch

from ..actor_critic import ActorCritic
from ..estimators import aggregation, losses
from ..rollout import Rollout


class A2C(ActorCritic):
    """Advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783, section 4; synchronous).

        L = - 1/Σ_i T_i Σ_i Σ_t (Â_{i,t} log π(a_{i,t} | s_{i,t}) - c_V (V(s_{i,t}) - target_{i,t})²)

    Where the paper takes n-step returns, this takes generalized advantages over whole episodes; λ = 1 is the paper's
    with n as long as the episode.

    Args: those of `ActorCritic`.
    """

    weights = staticmethod(aggregation.token_mean)

    def surrogate(self, log_probs: torch.Tensor, batch: Rollout) -> torch.Tensor:
        """Return Â log π [N, T]."""
        assert batch.advantages is not None
        return losses.policy_gradient(log_probs, batch.advantages)
