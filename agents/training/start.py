"""A watch over the first episodes of a run: whether there is anything to learn from. Without torch."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

HARD = 0.02  # of the answers right: in most groups of a few rollouts, all get the same reward
FIRST = round(3 / HARD)  # episodes: if none of so many is right, fewer than HARD are, with a confidence of 95 %


class StartWatch:
    """Warns once, when none of the first episodes is a success, and rewards that are compared are all equal.

    It looks no further after the first success or the first difference, and at no episodes whose success is unknown.

    Args:
        warns: whether the reward is the only signal.

    Attributes:
        warns: whether it still warns.
        looks: whether it still looks.
        episodes: without a success and without a difference, since the start.
    """

    def __init__(self, warns: bool = True) -> None:
        self.warns, self.looks, self.episodes = warns, warns, 0

    @property
    def hopeless(self) -> bool:
        """Whether so many episodes have taught nothing that few others will."""
        return self.looks and self.episodes >= FIRST

    def add(self, metrics: Mapping[str, float], episodes: int) -> None:
        """Look at the metrics of a rollout of so many episodes."""
        success = metrics.get("rollout/success_rate")
        if not self.looks or success is None:
            return
        grouped = metrics["rollout/group_size_min"] > 1
        differ = metrics["rollout/frac_reward_zero_std"] < 1 if grouped else metrics["rollout/reward_std"] > 0
        if success or differ:
            self.looks = False
            return
        self.episodes += episodes
        if self.hopeless and self.warns:
            self.warns = False
            warnings.warn(
                f"none of the first {self.episodes} answers is right, and those that are compared earn the same (on "
                f"average {metrics['rollout/ep_rew_mean']:.3g}): nothing is learned from that. Start from a policy "
                "that is sometimes right (rlenv.agents.warm_start, or a trained model), pose easier problems, or pay "
                "for parts of an answer",
                stacklevel=4,
            )
