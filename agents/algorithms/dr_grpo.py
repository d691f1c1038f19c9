"""GRPO done right."""

from __future__ import annotations

from typing import Any

import torch

from ..envs import step_limit
from ..estimators import aggregation, baselines, returns
from ..proximal import ProximalAgent
from ..rollout import Rollout


class DrGRPO(ProximalAgent):
    """GRPO without its two biases (Liu et al. 2025, arXiv:2503.20783, section 3.2).

        A_i = R_i - mean(R)        L = - 1/(N L_max) Σ_i Σ_t min(ρ_{i,t} A_i, clip(ρ_{i,t}, 1 ± ε) A_i)

    The mean includes the episode itself, which scales the gradient by exactly (K-1)/K; so does L_max, by 1/L_max.

    Args:
        policy: see `ProximalAgent`.
        env: see `ProximalAgent`.
        max_steps: L_max, a constant. None: the longest episode that the environment allows.
        kwargs: see `ProximalAgent`; `group_size` is at least 2. Without groups, the rollout is one group.

    Raises:
        ValueError: if nobody says how long an episode may be, and as `ProximalAgent` says.
    """

    default_group_size = 4
    compares_groups = True

    def __init__(self, policy: Any, env: Any, *, max_steps: int | None = None, **kwargs: Any) -> None:
        super().__init__(policy, env, **kwargs)
        self.max_steps = step_limit(self.env, max_steps, "max_steps")
        self.settings["max_steps"] = max_steps

    def weights(self, mask: torch.Tensor) -> torch.Tensor:
        """Return 1/(N L_max) where a step counts [N, T]."""
        return aggregation.constant_length(mask, self.max_steps)

    def advantages(self, rollout: Rollout) -> torch.Tensor:
        """Return R_i less the group's mean at every step [N, T]."""
        gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
        return gains - baselines.group_mean(gains, rollout)
