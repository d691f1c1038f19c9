"""Length-unbiased sequence policy optimization."""

from __future__ import annotations

from rlenv._settings import setting

from ..checks import Scheduled
from ..estimators import aggregation
from .gspo import GSPO


class LUSPO(GSPO):
    """Length-unbiased sequence policy optimization (Liu et al. 2026, arXiv:2602.05261).

        A_i = (R_i - mean(R)) / (std(R) + 1e-4)        s_i = (π(y_i) / π_old(y_i))^(1/T_i)
        L = - 1/N Σ_i T_i min(s_i A_i, clip(s_i, 1 - ε_low, 1 + ε_high) A_i)

    GSPO with each episode's loss multiplied by its length: the gradient of s_i has a factor 1/T_i, by which long wrong
    episodes are punished less, and T_i removes it. With one pass in one part s_i = 1, and only the standard deviation
    biases the gradient.
    """

    name = "luspo"
    weights = staticmethod(aggregation.sequence_sum)

    clip_range: Scheduled = setting(
        default=2e-3,
        help="ε_low, the paper's: 1/T_i in the exponent keeps s_i near 1 in long episodes.",
        more="Short ones and learning rates far above 1e-6 need a wider range.",
    )
    clip_range_high: Scheduled | None = setting(default=2.5e-3, help="ε_high.")
