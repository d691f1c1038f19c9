"""Tapered off-policy REINFORCE."""

from __future__ import annotations

import torch
from typing_extensions import override

from rlenv._settings import setting

from ..estimators import aggregation, gates, losses, returns
from ..rollout import Batch, Rollout
from ..training.proximal import PassesAgent


class TOPR(PassesAgent):
    """Tapered off-policy REINFORCE (Le Roux et al. 2025, arXiv:2503.14286).

        A_i = R_i - c        α_i = 1 where A_i ≥ 0, else min(1, π(y_i)/μ(y_i)), with μ the policy before the update
        L = - 1/N Σ_i sg(α_i) A_i Σ_t log π(a_{i,t} | s_{i,t})

    Good episodes are imitated whatever the ratio, bad ones count less the less likely they have become, so that later
    passes do not push them down for ever. The ratio is that of the whole episode. With one pass in one part α = 1: the
    gradient is that of REINFORCE with a constant baseline, and exact. `train/clip_fraction` is the share of steps whose
    weight is below 1/2.
    """

    name = "topr"
    advantages_stay = True
    weights = staticmethod(aggregation.sequence_sum)

    threshold: float = setting(
        default=0.5,
        help="c, subtracted from the return: episodes below it are bad.",
        more="0.5 makes rewards of 1 and 0 half of the paper's 1 and -1. It decides what share of the data is good.",
    )

    @override
    def advantages(self, rollout: Rollout) -> torch.Tensor:
        return returns.episode_return(rollout.rewards, rollout.mask, self.gamma) - self.threshold

    @override
    def surrogate(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        weights = gates.taper(log_probs, batch.log_probs, batch.advantages, batch.learnable)
        batch.note_clipped(weights < 0.5)
        return weights * losses.policy_gradient(log_probs, batch.advantages)
