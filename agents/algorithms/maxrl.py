"""Maximum likelihood reinforcement learning."""

from __future__ import annotations

from typing import Literal

import torch
from typing_extensions import override

from ..estimators import aggregation, returns, scaling
from ..rollout import Rollout
from ..training.proximal import ProximalAgent
from ._kl_in_loss import KL_ESTIMATOR, KL_IN


class MaxRL(ProximalAgent):
    """Maximum likelihood reinforcement learning (Tajwar et al. 2026, arXiv:2602.02710).

        A_i = (R_i - mean(R)) / mean(R), 0 if mean(R) ≤ 0
        L = - 1/N Σ_i Σ_t min(ρ_{i,t} A_i, clip(ρ_{i,t}, 1 ± ε) A_i)

    With rewards of 0 and 1, a prompt that is solved with probability p, and K verdicts, the expected gradient of a
    group is exactly Σ_{k=1}^{K-1} (1-p)^{k-1} ∇p: the series of ∇ log p, truncated at order K - 1. It is also
    ∇ Σ_{k=1}^{K-1} pass@k / k. Compared with `RLOO`, a prompt has up to K - 1 times the weight, the harder it is.
    Without the subtraction, R_i / mean(R) has order K, and so has R_i / mean(R) - 1 if the -1 also counts in groups
    without a success; here those have no gradient.

    Other rewards of 0 or more are weighed in the same way, without an objective in closed form. A group whose mean is 0
    or negative has no gradient, and a small mean of rewards of both signs makes large advantages: let wrong answers pay
    0. Groups of equal rewards have none.

    `group_size` (K) is at least 2. Without groups, the rollout is one group.
    """

    name = "maxrl"
    default_group_size = 4
    compares_groups = True
    weights = staticmethod(aggregation.sequence_sum)

    kl_in: Literal["loss"] = KL_IN
    kl_estimator: Literal["k1", "k2", "k3", "exact"] = KL_ESTIMATOR

    @override
    def advantages(self, rollout: Rollout) -> torch.Tensor:
        gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
        return scaling.over_group_mean(gains, rollout)
