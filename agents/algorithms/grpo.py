"""Group relative policy optimization."""

from __future__ import annotations

from ..estimators import aggregation
from ..training.proximal import ProximalAgent
from ._group_relative import SCALE, Scale, group_relative


class GRPO(ProximalAgent):
    """Group relative policy optimization (Shao et al. 2024, "DeepSeekMath", arXiv:2402.03300, eq. 3).

        A_i = (R_i - mean(R)) / (std(R) + 1e-4)
        L = - 1/N Σ_i 1/T_i Σ_t min(ρ_{i,t} A_i, clip(ρ_{i,t}, 1 ± ε) A_i)

    It has two biases, both measured in docs/appendix/gradients.md: the standard deviation gives more weight to prompts
    that are almost always or almost never solved, and 1/T_i punishes long wrong answers less than short ones. The
    paper's KL anchor is `kl_estimator="k3", kl_in="loss"`.
    """

    name = "grpo"
    default_group_size = 4
    compares_groups = True
    advantages = group_relative
    weights = staticmethod(aggregation.sequence_mean)

    scale: Scale = SCALE
