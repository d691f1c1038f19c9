"""REINFORCE++."""

from __future__ import annotations

import torch
from typing_extensions import override

from ..estimators import aggregation, returns, scaling
from ..estimators.baselines import BASELINES
from ..rollout import Rollout
from ..settings import by_settings
from ..training.proximal import ProximalAgent
from .options import PlusPlusOptions


class ReinforcePlusPlus(ProximalAgent, PlusPlusOptions):
    """REINFORCE with PPO's tricks and no critic (Hu et al. 2025, arXiv:2501.03262, section 3).

        G_t = Σ_{k≥t} (r_k - β KL_k)        A_t = (G_t - b - mean) / (std + 1e-8), over all steps of the rollout
        L = - 1/Σ_i T_i Σ_i Σ_t min(ρ_{i,t} A_{i,t}, clip(ρ_{i,t}, 1 ± ε) A_{i,t})

    The anchor's KL is part of the return (`kl_in="reward"`), token by token. All prompts share one mean and one
    standard deviation, so easy prompts do not gain weight as they do from a group's own standard deviation. Both are
    taken after b, so that groups of equal returns also have advantages, unless all returns are equal.
    """

    name = "reinforce-plus-plus"
    weights = staticmethod(aggregation.token_mean)

    compares_groups = by_settings(lambda self: self.baseline == "group-mean")

    @override
    def advantages(self, rollout: Rollout) -> torch.Tensor:
        gains = returns.return_to_go(rollout.rewards, rollout.mask, self.gamma)
        gains = returns.hold_last(gains, rollout.mask)
        return scaling.whiten(gains - BASELINES[self.baseline]()(gains, rollout), rollout.learnable)
