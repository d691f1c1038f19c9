"""Soft adaptive policy optimization."""

from __future__ import annotations

import torch
from typing_extensions import override

from rlenv._settings import setting

from ..estimators import aggregation, gates
from ..rollout import Batch
from ..training.proximal import PassesAgent
from ._group_relative import SCALE, Scale, group_relative


class SAPO(PassesAgent):
    """Soft adaptive policy optimization (Gao et al. 2025, arXiv:2511.20347).

        A_i = (R_i - mean(R)) / (std(R) + 1e-4)        τ_i = τ_pos where A_i > 0, else τ_neg
        L = - 1/N Σ_i 1/T_i Σ_t 4/τ_i σ(τ_i (ρ_{i,t} - 1)) A_i

    GRPO with a gate that closes smoothly as the ratio leaves 1, to both sides, in place of the clip. The gradient is
    weighted with 4 σ (1 - σ), sooner small for bad actions, whose gradient spreads over all other tokens. With one pass
    in one part ρ = 1, the gate is open, and the gradient is that of GRPO. `train/clip_fraction` is the share of steps
    whose gate is less than half open: 4 σ (1 - σ) < 1/2.
    """

    name = "sapo"
    advantages_stay = True
    default_group_size = 4
    compares_groups = True
    advantages = group_relative
    weights = staticmethod(aggregation.sequence_mean)

    scale: Scale = SCALE

    gate_temperature: float = setting(
        default=1.0, help="τ_pos, of actions with a positive advantage; the larger, the narrower.", above=0
    )
    gate_temperature_negative: float = setting(
        default=1.05, help="τ_neg, of the other actions; the paper's, as τ_pos is.", above=0
    )

    @override
    def surrogate(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        temperatures = self.gate_temperature, self.gate_temperature_negative
        compared = log_probs, batch.log_probs, batch.advantages, *temperatures
        batch.note_clipped(gates.is_closing(*compared))
        return gates.soft_gate(*compared)
