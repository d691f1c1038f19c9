"""Group relative policy optimization."""

from __future__ import annotations

import torch

from ..estimators import aggregation, returns, scaling
from ..proximal import ProximalAgent
from ..rollout import Rollout


class GRPO(ProximalAgent):
    """Group relative policy optimization (Shao et al. 2024, "DeepSeekMath", arXiv:2402.03300, eq. 3).

        A_i = (R_i - mean(R)) / (std(R) + 1e-4)
        L = - 1/N Σ_i 1/T_i Σ_t min(ρ_{i,t} A_i, clip(ρ_{i,t}, 1 ± ε) A_i)

    Two biases come with it, both measured in docs/gradients.md: the standard deviation gives prompts that are almost
    always or almost never solved more weight, and 1/T_i punishes long wrong answers less than short ones. The paper's
    anchor is `kl_estimator="k3", kl_in="loss"`.

    Args: those of `ProximalAgent`; `group_size` is at least 2. Without groups, the rollout is one group.
    """

    default_group_size = 4
    compares_groups = True
    weights = staticmethod(aggregation.sequence_mean)

    def advantages(self, rollout: Rollout) -> torch.Tensor:
        """Return the standardized return of the episode at every step [N, T]."""
        gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
        return scaling.standardize_groups(gains, rollout)
