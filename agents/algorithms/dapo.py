"""Decoupled clip and dynamic sampling policy optimization."""

from __future__ import annotations

from dataclasses import replace

import torch
from gymnasium.vector import VectorEnv
from stable_baselines3.common.callbacks import BaseCallback
from typing_extensions import override

from rlenv._checks import check_count
from rlenv._settings import setting

from ..checks import Scheduled
from ..estimators import aggregation, returns, scaling
from ..rollout import Batch, Rollout, join, without_verdicts
from ..rollouts.envs import step_limit
from ..training.proximal import ProximalAgent


class DAPO(ProximalAgent):
    """Decoupled clip and dynamic sampling policy optimization (Yu et al. 2025, arXiv:2503.14476, eq. 8).

        A_i = (R_i - mean(R)) / (std(R) + 1e-4)
        L = - 1/Σ_i T_i Σ_i Σ_t min(ρ_{i,t} A_i, clip(ρ_{i,t}, 1 - ε_low, 1 + ε_high) A_i)

    Dynamic sampling: groups whose episodes all have the same reward have no gradient. They are left out, and episodes
    are collected up to `max_rounds` times until N others were found; an update with fewer uses those, one without any
    changes nothing. Metrics of the rollout (rewards, success) are of all episodes collected, those of training of the
    ones kept.

    `group_size` is at least 2. Without groups, the rollout is one group.
    """

    name = "dapo"
    default_group_size = 4
    compares_groups = True
    weights = staticmethod(aggregation.token_mean)

    clip_range_high: Scheduled | None = setting(
        default=0.28, help="ε_high; above ε_low, unlikely actions become likely sooner."
    )
    max_rounds: int = setting(default=4, help="Most collections per update; 1 for no resampling.")
    overlong_buffer: int = setting(
        default=0,
        help="Last steps of the longest episode possible that cost up to 1 (eq. 13), 0 for none.",
        low=0,
        more="The paper takes a fifth. Off by default, since the correct answer of a short task may be as long as "
        "allowed.",
    )
    mask_truncated: bool = setting(
        default=False,
        help='Leave episodes that were cut off out of the loss ("overlong filtering", section 3.4).',
        more="Their rewards still count in their group. Not for control, where the best episodes are cut off.",
    )
    max_steps: int | None = setting(
        default=None, help="The longest episode possible, for `overlong_buffer`.", shown="what the environment allows"
    )

    @override
    def setup(self, env: VectorEnv, group_size: int | None) -> None:
        super().setup(env, group_size)
        if self.overlong_buffer:
            check_count("overlong_buffer", self.overlong_buffer, high=step_limit(env, self.max_steps))

    @override
    def collect_rollout(self, callback: BaseCallback) -> Rollout | None:
        rounds: list[Rollout] = []
        useful = 0
        while useful < self.episodes_per_update and len(rounds) < self.max_rounds:
            rollout = super().collect_rollout(callback)
            if rollout is None:
                return None
            rounds.append(rollout)
            useful += int(self._has_gradient(rollout).sum())
        return join(rounds, self.policy.obs_from_actions)

    @override
    def prepare(self, rollout: Rollout) -> Batch:
        useful = self._has_gradient(rollout)
        rows = useful.nonzero()[:, 0][: self.episodes_per_update]
        if len(rows) == 0:
            return super().prepare(without_verdicts(rollout, ~useful))
        batch = super().prepare(rollout.select(rows))
        cut = batch.truncated[:, None] & self.mask_truncated
        weights = self.weights(batch.learnable & ~cut).to(batch.weights)
        return replace(batch, weights=weights, advantages=batch.advantages.where(~cut, 0))

    @override
    def advantages(self, rollout: Rollout) -> torch.Tensor:
        gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
        if self.overlong_buffer:
            longest = step_limit(self.env, self.max_steps)
            gains = gains - returns.overlong_penalty(rollout.lengths, longest, self.overlong_buffer)[:, None]
        return scaling.standardize_groups(gains, rollout)

    def _has_gradient(self, rollout: Rollout) -> torch.Tensor:
        """Return which episodes are in a group with unequal rewards, bool [N]."""
        return scaling.group_std(rollout.returns[:, None], rollout)[:, 0] > 0
