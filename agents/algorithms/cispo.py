"""Clipped importance-sampling-weight policy optimization."""

from __future__ import annotations

import math

import torch
from typing_extensions import override

from rlenv._settings import setting

from ..estimators import aggregation, clipping
from ..rollout import Batch
from ..training.proximal import PassesAgent
from ._group_relative import SCALE, Scale, group_relative


class CISPO(PassesAgent):
    """Clipped importance-sampling-weight policy optimization (MiniMax 2025, "MiniMax-M1", arXiv:2506.13585, eqs. 4, 5).

        A_i = (R_i - mean(R)) / (std(R) + 1e-4)
        L = - 1/Σ_i T_i Σ_i Σ_t sg(min(ρ_{i,t}, ρ_max)) A_i log π(a_{i,t} | s_{i,t})

    REINFORCE with a truncated importance weight, which is a constant (sg): unlike with PPO's clip, every step keeps a
    gradient, also one whose probability has changed much. The weight has no lower bound, as in the paper.
    """

    name = "cispo"
    advantages_stay = True
    default_group_size = 4
    compares_groups = True
    advantages = group_relative
    weights = staticmethod(aggregation.token_mean)

    scale: Scale = SCALE

    max_ratio: float = setting(
        default=5.0,
        help="ρ_max, the paper's 1 + ε_high.",
        low=1,
        more="The paper gives no figure; 5 is that of Khatri et al. 2025 (arXiv:2510.13786).",
    )

    @override
    def surrogate(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        batch.note_clipped(log_probs - batch.log_probs > math.log(self.max_ratio))
        return clipping.weighted_log_prob(log_probs, batch.log_probs, batch.advantages, self.max_ratio)
