"""Pass-at-k policy optimization."""

from __future__ import annotations

from typing import Literal

import torch
from gymnasium.vector import VectorEnv
from typing_extensions import override

from rlenv._settings import setting

from ..estimators import aggregation, best_of_k, returns
from ..rollout import Rollout
from ..training.agent import Agent
from ._kl_in_loss import KL_ESTIMATOR, KL_IN
from .options import PKPOOptions

USUAL = 4


class PKPO(Agent, PKPOOptions):
    """Pass-at-k policy optimization (Walder & Karkhanis 2025, arXiv:2505.15201).

        A_i = k (mean_{I∋i, |I|=k} max_{j∈I} R_j - b_i)        L = - 1/N Σ_i Σ_t A_i log π(a_{i,t} | s_{i,t})

    over subsets I of the episodes of a group. Unbiased for the expected highest reward of k samples, which is pass@k if
    rewards are 0 and 1, for any k up to the number of verdicts of the group; with fewer verdicts, for the best of
    those. With k = 1 and a baseline, it is `RLOO`. The default b_i, the best of the others in I, leaves A_i ≥ 0 for
    k ≥ 2: an episode is paid for what it adds, and wrong answers are not pushed down.

    `group_size` is at least 2, and at least k. Without groups, the rollout is one group.

    Raises:
        ValueError: if k is larger than the groups.
    """

    name = "pkpo"
    default_group_size = 8
    compares_groups = True
    weights = staticmethod(aggregation.sequence_sum)

    kl_in: Literal["loss"] = KL_IN
    kl_estimator: Literal["k1", "k2", "k3", "exact"] = KL_ESTIMATOR

    k: int | None = setting(
        fixed=True,
        default=None,
        help="Of how many samples the best counts, at most the size of a group.",
        shown="4, or the size of a smaller group",
    )

    @override
    def setup(self, env: VectorEnv, group_size: int | None) -> None:
        size = group_size or self.episodes_per_update
        if (self.k or 0) > size:
            raise ValueError(
                f"k={self.k} is more than the {size} episodes of a group; use k=1 to {size}, or larger groups"
            )

    @property
    def best_of(self) -> int:
        """The k that counts."""
        return self.k or min(USUAL, self.group_size or self.episodes_per_update)

    @override
    def advantages(self, rollout: Rollout) -> torch.Tensor:
        gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
        return best_of_k.best_of_k(gains, rollout, self.best_of, self.baseline)
