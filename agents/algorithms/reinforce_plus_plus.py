"""REINFORCE++."""

from __future__ import annotations

from typing import Any

import torch

from ..checks import check_choice
from ..estimators import aggregation, returns, scaling
from ..estimators.baselines import BASELINES
from ..proximal import ProximalAgent
from ..rollout import Rollout

ALLOWED = ("none", "group-mean")


class ReinforcePlusPlus(ProximalAgent):
    """REINFORCE with PPO's tricks and no critic (Hu et al. 2025, arXiv:2501.03262, section 3).

        G_t = Σ_{k≥t} (r_k - β KL_k)        A_t = (G_t - b - mean) / (std + 1e-8), over all steps of the rollout
        L = - 1/Σ_i T_i Σ_i Σ_t min(ρ_{i,t} A_{i,t}, clip(ρ_{i,t}, 1 ± ε) A_{i,t})

    The anchor's KL is part of the return (`kl_in="reward"`), token by token. One mean and one standard deviation serve
    all prompts, so that easy prompts are not blown up as a group's own standard deviation does; they are taken after b,
    and a group of equal returns is moved by them, too, unless all returns are equal.

    Args:
        policy: see `ProximalAgent`.
        env: see `ProximalAgent`.
        baseline: b, "none" or, for the paper's REINFORCE++-baseline, "group-mean"; that takes `group_size` of at
            least 2 and, for one episode a prompt, means nothing.
        kwargs: see `ProximalAgent`.

    Raises:
        ValueError: for an unknown baseline, and as `ProximalAgent` says.
    """

    weights = staticmethod(aggregation.token_mean)

    def __init__(self, policy: Any, env: Any, *, baseline: str = "none", **kwargs: Any) -> None:
        self.baseline_name = check_choice("baseline", baseline, ALLOWED)
        self.compares_groups = baseline == "group-mean"
        super().__init__(policy, env, **kwargs)
        self.settings["baseline"] = baseline
        self.baseline = BASELINES[baseline]()

    def advantages(self, rollout: Rollout) -> torch.Tensor:
        """Return the whitened return-to-go [N, T]."""
        gains = returns.return_to_go(rollout.rewards, rollout.mask, self.gamma)
        gains = returns.hold_last(gains, rollout.mask)
        return scaling.whiten(gains - self.baseline(gains, rollout), rollout.learnable)
