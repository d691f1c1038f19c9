"""Rewards divided by how much the discounted return varies, so that a critic need not learn their scale."""

from __future__ import annotations

from dataclasses import replace

from stable_baselines3.common.running_mean_std import RunningMeanStd

from ..devices import to_host
from ..estimators.returns import discounted_sum
from ..rollout import GREEDY_RETURN, Rollout

EPS = 1e-8


class RewardScale:
    """Divides rewards by the standard deviation of the episodes' discounted sums so far, over all rollouts so far.

        F_t = γ F_{t-1} + r_t        r_t ← r_t / (std(F) + ε)

    F is that of stable-baselines3's VecNormalize and Gymnasium's NormalizeReward; here the scale is the same for all
    steps of a rollout. The mean is not subtracted: it would change the value of an episode's length.

    Attributes:
        moments: of F, over all steps so far.
    """

    def __init__(self) -> None:
        self.moments = RunningMeanStd(epsilon=0.0)

    def __call__(self, rollout: Rollout, gamma: float) -> Rollout:
        """Add a rollout to the statistics, and return it with its rewards divided; γ is 0 to 1."""
        earned, steps = to_host(discounted_sum(rollout.rewards, rollout.learnable, gamma), rollout.learnable)
        finite = earned[steps & earned.isfinite()]  # the update on others is skipped
        if len(finite):
            self.moments.update(finite.double().numpy())
        std = float(self.moments.var) ** 0.5
        if not std:  # all equal so far
            return rollout
        compared = {name: each / (std + EPS) for name, each in rollout.extras.items() if name == GREEDY_RETURN}
        return replace(rollout, rewards=rollout.rewards / (std + EPS)).with_extras(**compared)
