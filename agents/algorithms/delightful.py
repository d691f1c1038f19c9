"""The delightful policy gradient."""

from __future__ import annotations

import torch
from typing_extensions import override

from rlenv._settings import setting

from ..estimators import gates, losses
from ..rollout import Batch
from .reinforce_baseline import ReinforceBaseline


class Delightful(ReinforceBaseline):
    """The delightful policy gradient (Osband 2026, arXiv:2603.14608).

        A_{i,t} = G_{i,t} - b_{i,t}        g_{i,t} = σ(-A_{i,t} log π(a_{i,t} | s_{i,t}) / η)
        L = - 1/N Σ_i Σ_t sg(g_{i,t}) A_{i,t} log π(a_{i,t} | s_{i,t})

    REINFORCE with a gate made of advantage times surprisal: rare successes count nearly in full, rare failures hardly,
    and actions that are nearly certain half. It biases the gradient, however many episodes there are; for a wide gate,
    it is half of `ReinforceBaseline`'s. For actions that are numbers, densities take the place of probabilities.
    """

    name = "delightful"
    advantages_stay = True

    gate_width: float = setting(
        default=1.0,
        help="η, the paper's, in units of A log π: the larger, the less the gate tells actions apart.",
        above=0,
    )

    @override
    def surrogate(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        gate = gates.delight(log_probs, batch.advantages, self.gate_width)
        return gate * losses.policy_gradient(log_probs, batch.advantages)
