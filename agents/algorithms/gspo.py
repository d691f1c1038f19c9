"""Group sequence policy optimization."""

from __future__ import annotations

import torch
from typing_extensions import override

from rlenv._settings import setting

from ..checks import Scheduled
from ..estimators import clipping
from ..rollout import Batch
from .grpo import GRPO


class GSPO(GRPO):
    """Group sequence policy optimization (Zheng et al. 2025, arXiv:2507.18071, eqs. 5 to 7).

        A_i = (R_i - mean(R)) / (std(R) + 1e-4)        s_i = (π(y_i) / π_old(y_i))^(1/T_i)
        L = - 1/N Σ_i min(s_i A_i, clip(s_i, 1 - ε_low, 1 + ε_high) A_i)

    GRPO with one ratio for the whole episode: it is clipped, or not, as a whole, as it is rewarded. With one pass in
    one part s_i = 1, and the gradient is that of GRPO; the paper takes four parts (`num_minibatches=4`).
    """

    name = "gspo"
    advantages_stay = True

    clip_range: Scheduled = setting(
        default=3e-4,
        help="ε_low, the paper's: 1/T_i in the exponent keeps s_i near 1 in long episodes.",
        more="Short ones and learning rates far above 1e-6 need a wider range.",
    )
    clip_range_high: Scheduled | None = setting(default=4e-4, help="ε_high.")

    @override
    def surrogate(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        new, old = (clipping.per_sequence(each, batch.learnable) for each in (log_probs, batch.log_probs))
        return self.clipped(new, old, batch)
