"""Clip-Cov and KL-Cov: steps that would lower the entropy most are left out, or held back."""

from __future__ import annotations

import torch
from typing_extensions import override

from rlenv._settings import setting

from ..estimators import gates, kl
from ..rollout import Batch
from ._by_covariance import CovarianceAgent


class ClipCov(CovarianceAgent):
    """Clip-Cov (Cui et al. 2025, "The entropy mechanism", arXiv:2505.22617).

        A_i = (R_i - mean(R)) / (std(R) + 1e-4)        cov_{i,t} = (log π_{i,t} - mean(log π)) (A_i - mean(A))
        L = - 1/Σ_i T_i Σ_i Σ_t ρ_{i,t} A_i, less the steps with the largest cov in (cov_low, cov_high)

    Likely actions with a high advantage lower the entropy most; a few of them get no gradient, which holds entropy up.
    It acts in the first pass, too. `train/clip_fraction` is the share of steps left out.
    """

    name = "clip-cov"
    advantages_stay = True

    min_covariance: float = setting(default=1.0, help="cov_low: steps are chosen above it.")
    max_covariance: float | None = setting(default=5.0, help="cov_high: steps are chosen below it.")

    @override
    def surrogate(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        chosen = batch.extras["chosen"]
        ratio = gates.ratio(log_probs, batch.log_probs, batch.advantages)
        batch.note_clipped(chosen)
        return ratio.where(~chosen, 0)


class KLCov(CovarianceAgent):
    """KL-Cov (Cui et al. 2025, "The entropy mechanism", arXiv:2505.22617).

        A_i = (R_i - mean(R)) / (std(R) + 1e-4)        cov_{i,t} = (log π_{i,t} - mean(log π)) (A_i - mean(A))
        L = - 1/Σ_i T_i Σ_i Σ_t (ρ_{i,t} A_i - β_{i,t} (ρ_{i,t} - 1 - log ρ_{i,t}))

    β_{i,t} is β for the steps with the largest cov, else 0; its factor estimates KL(π_old ‖ π) without bias, and its
    gradient that of it. With one pass in one part ρ = 1, and the penalty has no gradient. `train/clip_fraction` is the
    share of steps with the penalty.
    """

    name = "kl-cov"
    advantages_stay = True

    penalty: float = setting(default=1.0, help="β, the weight of the KL of the chosen steps.", low=0)

    @override
    def surrogate(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        chosen = batch.extras["chosen"]
        held = self.penalty * kl.k3(batch.log_probs, log_probs)
        ratio = gates.ratio(log_probs, batch.log_probs, batch.advantages)
        batch.note_clipped(chosen)
        return ratio - held.where(chosen, 0)
