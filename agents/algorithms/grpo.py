"""Group relative policy optimization."""

from __future__ import annotations

import torch
from typing_extensions import override

from ..core.rollout import Rollout
from ..core.settings import setting
from ..estimators import aggregation, returns, scaling
from ..trainer.proximal import ProximalAgent


class GRPO(ProximalAgent):
    """Group relative policy optimization (Shao et al. 2024, "DeepSeekMath", arXiv:2402.03300, eq. 3).

        A_i = (R_i - mean(R)) / (std(R) + 1e-4)
        L = - 1/N Σ_i 1/T_i Σ_t min(ρ_{i,t} A_i, clip(ρ_{i,t}, 1 ± ε) A_i)

    It has two biases, both measured in docs/gradients.md: the standard deviation gives more weight to prompts that are
    almost always or almost never solved, and 1/T_i punishes long wrong answers less than short ones. The paper's KL
    anchor is `kl_estimator="k3", kl_in="loss"`.

    `group_size` is at least 2. Without groups, the rollout is one group.
    """

    name = "grpo"
    default_group_size = 4
    compares_groups = True
    weights = staticmethod(aggregation.sequence_mean)

    scale: str = setting(
        default="group",
        choices=scaling.SCALES,
        help="Which standard deviation the advantages are divided by.",
        more='With "batch", that of all rewards of the rollout (Liu et al. 2025, "Lite PPO", arXiv:2508.08221), which '
        "removes the first bias but for a common factor.",
    )

    @override
    def advantages(self, rollout: Rollout) -> torch.Tensor:
        gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
        return scaling.standardize_groups(gains, rollout, self.scale)
