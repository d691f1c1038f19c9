"""GRPO done right."""

from __future__ import annotations

import torch
from gymnasium.vector import VectorEnv
from typing_extensions import override

from rlenv._settings import setting

from ..estimators import aggregation, baselines, returns
from ..rollout import Rollout
from ..rollouts.envs import step_limit
from ..training.proximal import ProximalAgent


class DrGRPO(ProximalAgent):
    """GRPO without its two biases (Liu et al. 2025, arXiv:2503.20783, section 3.2).

        A_i = R_i - mean(R)        L = - 1/(N L_max) Σ_i Σ_t min(ρ_{i,t} A_i, clip(ρ_{i,t}, 1 ± ε) A_i)

    The mean includes the episode itself, which scales the gradient by exactly (K-1)/K; so does L_max, by 1/L_max.

    `group_size` is at least 2. Without groups, the rollout is one group.

    Raises:
        ValueError: if `max_steps` is needed but not given.
    """

    name = "dr-grpo"
    default_group_size = 4
    compares_groups = True

    max_steps: int | None = setting(
        default=None, help="L_max, which the loss is divided by.", shown="what the environment allows"
    )

    @override
    def setup(self, env: VectorEnv, group_size: int | None) -> None:
        super().setup(env, group_size)
        step_limit(env, self.max_steps)  # which is an error if there is none

    @override
    def weights(self, mask: torch.Tensor) -> torch.Tensor:
        return aggregation.constant_length(mask, step_limit(self.env, self.max_steps))

    @override
    def advantages(self, rollout: Rollout) -> torch.Tensor:
        gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
        return gains - baselines.group_mean(gains, rollout)
