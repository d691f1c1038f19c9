"""Variational sequence-level soft policy optimization."""

from __future__ import annotations

import torch
from typing_extensions import override

from rlenv._settings import setting

from ..estimators import aggregation, gates, losses
from ..rollout import Batch
from ..training.proximal import PassesAgent
from ._group_relative import SCALE, Scale, group_relative


class VESPO(PassesAgent):
    """Variational sequence-level soft policy optimization (Shen et al. 2026, arXiv:2602.10693).

        A_i = (R_i - mean(R)) / (std(R) + 1e-4)        W_i = π(y_i) / μ(y_i), with μ the policy that sampled
        φ_i = W_i^k exp(λ (1 - W_i)), with k and λ by the sign of A_i
        L = - 1/Σ_i T_i Σ_i sg(φ_i) A_i Σ_t log π(a_{i,t} | s_{i,t})

    REINFORCE with a weight per episode that is 1 at W = 1 and falls to 0 on both sides, sooner for bad episodes that
    have become unlikely. k = 1 and λ = 0 are plain importance weights. With one pass in one part φ = 1, and the
    gradient is that of CISPO. With `mismatch`, its weight is a factor of W, not of the loss. `train/clip_fraction` is
    the share of steps with φ < 1/2.
    """

    name = "vespo"
    advantages_stay = True
    importance_in_surrogate = True  # as a factor of W
    default_group_size = 4
    compares_groups = True
    advantages = group_relative
    weights = staticmethod(aggregation.token_mean)

    scale: Scale = SCALE

    power: float = setting(
        default=2.0, help="k of good episodes, the paper's: how fast φ falls as W goes to 0.", above=0
    )
    decay: float = setting(default=3.0, help="λ of good episodes, the paper's: how fast φ falls as W grows.", low=0)
    power_negative: float = setting(default=3.0, help="k of bad episodes, the paper's.", above=0)
    decay_negative: float = setting(default=2.0, help="λ of bad episodes, the paper's.", low=0)

    @override
    def surrogate(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        weights = self._kernel(log_probs, batch)
        batch.note_clipped(weights < 0.5)
        return weights * losses.policy_gradient(log_probs, batch.advantages)

    def _kernel(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return φ of each step's episode, a constant [N, T]."""
        steps = batch.learnable
        moved = (log_probs - batch.log_probs).detach().where(steps, 0).sum(1, keepdim=True)  # [N, 1]
        if "importance" in batch.extras:
            weights = batch.extras["importance"].log().where(steps, 0).sum(1, keepdim=True)
            per_step = str(self.mismatch_mode).startswith("token")
            moved = moved + (weights if per_step else weights / steps.sum(1, keepdim=True).clamp(min=1))
        good, bad = (self.power, self.decay), (self.power_negative, self.decay_negative)
        return gates.gamma_kernel(moved, batch.advantages, good, bad)
