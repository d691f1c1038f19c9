"""Divergence proximal policy optimization."""

from __future__ import annotations

import torch
from typing_extensions import override

from rlenv._settings import setting

from ..estimators import gates
from ..rollout import Batch
from .cispo import CISPO


class DPPO(CISPO):
    """Divergence proximal policy optimization (Qi et al. 2026, arXiv:2602.04879, with the binary total variation).

        A_i = (R_i - mean(R)) / (std(R) + 1e-4)
        M_{i,t} = 0 where sign(A_i) (π(a_{i,t}|s_{i,t}) - π_old(a_{i,t}|s_{i,t})) > δ, else 1
        L = - 1/Σ_i T_i Σ_i Σ_t M_{i,t} sg(min(ρ_{i,t}, ρ_max)) A_i log π(a_{i,t} | s_{i,t})

    A step stops when the probability of its action has moved by δ, whatever the ratio: a ratio of 2 is little from
    0.001 and much from 0.4. CISPO with this mask, and with a bound of the weight that is only for safety. With one pass
    in one part no step is masked, and the gradient is that of CISPO. `train/clip_fraction` is the share of masked
    steps. For actions that are numbers, densities take the place of probabilities.
    """

    name = "dppo"
    advantages_stay = True

    max_ratio: float = setting(
        default=20.0,
        help="ρ_max, the largest weight.",
        more="The default of verl's implementation; it should seldom be reached.",
    )
    max_moved: float = setting(
        default=0.2,
        help="δ: how far the probability of an action may move in an update.",
        above=0,
        more="The default of verl's implementation.",
    )

    @override
    def surrogate(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        masked = gates.moved_too_far(log_probs.detach(), batch.log_probs, batch.advantages, self.max_moved)
        weighted = super().surrogate(log_probs, batch)
        batch.note_clipped(masked)
        return weighted.where(~masked, 0)
