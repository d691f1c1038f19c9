"""Proximal policy optimization."""

from __future__ import annotations

from typing import Any

import torch

from ..actor_critic import ActorCritic
from ..checks import check_flag, check_number
from ..estimators import aggregation, losses, scaling
from ..proximal import ProximalAgent
from ..rollout import Rollout


class PPO(ProximalAgent, ActorCritic):
    """Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347, eqs. 7 and 9).

        L = - 1/Σ_i T_i Σ_i Σ_t (min(ρ_{i,t} Â_{i,t}, clip(ρ_{i,t}, 1 ± ε) Â_{i,t}) - c_V (V(s_{i,t}) - target_{i,t})²)

    Args:
        policy: see `ActorCritic`.
        env: see `ActorCritic`.
        normalize_advantage: whether Â is whitened over the rollout, once and before it is split into parts. The field
            does; it biases the gradient by a common factor and offset.
        clip_range_vf: the critic's value may leave the old one by this much before its error stops to count, above 0;
            None for no limit. Not in the paper; part of its first implementation.
        kwargs: see `ProximalAgent` and `ActorCritic`.

    Raises:
        ValueError: for a hyper-parameter out of range, and as `ProximalAgent` and `ActorCritic` say.
    """

    defaults = {
        "control": {"gae_lambda": 0.95, "num_epochs": 4, "num_minibatches": 4},
        "language-model": {"num_epochs": 2, "num_minibatches": 2},
    }
    weights = staticmethod(aggregation.token_mean)

    def __init__(
        self,
        policy: Any,
        env: Any,
        *,
        normalize_advantage: bool = True,
        clip_range_vf: float | None = None,
        **kwargs: Any,
    ) -> None:
        if clip_range_vf is not None:
            check_number("clip_range_vf", clip_range_vf, low=0.0, above=True)
        super().__init__(policy, env, **kwargs)
        self.normalize_advantage = check_flag("normalize_advantage", normalize_advantage)
        self.clip_range_vf = clip_range_vf
        self.settings |= {"normalize_advantage": normalize_advantage, "clip_range_vf": clip_range_vf}

    def advantages(self, rollout: Rollout) -> torch.Tensor:
        """Return Â, whitened where asked for [N, T]."""
        credit = super().advantages(rollout)
        return scaling.whiten(credit, rollout.learnable) if self.normalize_advantage else credit

    def critic_loss(self, values: torch.Tensor, batch: Rollout) -> torch.Tensor:
        """Return the critic's squared error, clipped where asked for [N, T]."""
        if self.clip_range_vf is None:
            return super().critic_loss(values, batch)
        assert batch.values is not None and batch.value_targets is not None
        return losses.clipped_squared_error(values, batch.values, batch.value_targets, self.clip_range_vf)
