"""REINFORCE, without a baseline."""

from __future__ import annotations

import torch
from typing_extensions import override

from rlenv._settings import OrDefault, setting

from ..checks import Scheduled
from ..estimators import aggregation, returns
from ..rollout import Rollout
from ..training.agent import Agent


class Reinforce(Agent):
    """Episodic REINFORCE (Williams 1992, "Simple statistical gradient-following algorithms", section 5).

        A_{i,t} = R_i        L = - 1/N Σ_i Σ_t A_{i,t} log π(a_{i,t} | s_{i,t})

    Unbiased for the expected (discounted) return, with the highest variance of the family.
    """

    name = "reinforce"
    weights = staticmethod(aggregation.sequence_sum)

    gamma: OrDefault[float] = setting(default=None, by_kind={"control": 1.0})
    learning_rate: OrDefault[Scheduled] = setting(
        default=None,
        by_kind={"control": 3e-3},
        shown="3e-4 for tiny, less for larger models, 10 times as much for adapters; control 3e-3",
    )

    @override
    def advantages(self, rollout: Rollout) -> torch.Tensor:
        return returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
