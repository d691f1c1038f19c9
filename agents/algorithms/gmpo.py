"""Geometric-mean policy optimization."""

from __future__ import annotations

import torch
from typing_extensions import override

from rlenv._settings import setting

from ..checks import Scheduled
from ..estimators import clipping
from ..rollout import Batch
from .grpo import GRPO


class GMPO(GRPO):
    """Geometric-mean policy optimization (Zhao et al. 2025, arXiv:2507.20673).

        A_i = (R_i - mean(R)) / (std(R) + 1e-4)
        c_{i,t} = min(ρ_{i,t}, 1 + ε_high) where A_i > 0, else max(ρ_{i,t}, 1 - ε_low)
        L = - 1/N Σ_i (Π_t c_{i,t})^(1/T_i) A_i

    The geometric mean of an episode's ratios in place of GRPO's arithmetic one, which a single large ratio moves more.
    GSPO clips the mean; here each step is clipped before, in a range so wide that it seldom happens. With one pass in
    one part ρ = 1, and the gradient is that of GRPO.
    """

    name = "gmpo"
    advantages_stay = True

    clip_range: Scheduled = setting(
        default=0.33, help="ε_low, the paper's e^-0.4: a bad step's ratio counts as at least 1 - clip_range."
    )
    clip_range_high: Scheduled | None = setting(
        default=0.49, help="ε_high, the paper's e^0.4: a good step's ratio counts as at most 1 + this."
    )

    @override
    def surrogate(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        compared = log_probs, batch.log_probs, batch.advantages, *self.bounds
        batch.note_clipped(clipping.is_clipped(*compared))
        return clipping.per_sequence(clipping.clipped_log_ratio(*compared), batch.learnable).exp() * batch.advantages
