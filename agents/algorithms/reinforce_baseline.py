"""REINFORCE with a baseline, over the whole axis of baselines and both returns."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from gymnasium.vector import VectorEnv
from stable_baselines3.common.callbacks import BaseCallback
from typing_extensions import override

from ..estimators import aggregation, returns
from ..estimators.baselines import BASELINES, RunningMean
from ..rollout import GREEDY_RETURN, Rollout
from ..rollouts.envs import check_replays
from ..settings import by_settings
from ..training.agent import Agent
from .options import BaselineOptions

RETURNS = {"return-to-go": returns.return_to_go, "episode": returns.episode_return}
OF_A_GROUP = ("group-mean", "leave-one-out", "length-weighted", "optimal-token", "james-stein")


class ReinforceBaseline(Agent, BaselineOptions):
    """REINFORCE with return-to-go and a baseline (Williams 1992; Sutton & Barto 2018, section 13.4).

        A_{i,t} = G_{i,t} - b_{i,t}        L = - 1/N Σ_i Σ_t A_{i,t} log π(a_{i,t} | s_{i,t})

    Raises:
        ValueError: for an unknown baseline or return, a group baseline over groups of one, "optimal-token" for actions
            that are not one choice out of A, or "greedy" in an environment that cannot pose a prompt twice.
    """

    name = "reinforce-baseline"
    weights = staticmethod(aggregation.sequence_sum)
    default_group_size = 4

    uses_critic = by_settings(lambda self: self.baseline == "value")
    compares_groups = by_settings(lambda self: self.baseline in OF_A_GROUP)
    extras = by_settings(lambda self: ("score_norms",) if self.baseline == "optimal-token" else ())
    carried = by_settings(
        lambda self: {"baseline": self.subtracted} if isinstance(self.subtracted, RunningMean) else {}
    )

    @cached_property
    def subtracted(self) -> Any:
        """The baseline, a function of returns and rollout."""
        return BASELINES[self.baseline]()

    @override
    def setup(self, env: VectorEnv, group_size: int | None) -> None:
        if self.baseline == "optimal-token" and not self.policy.is_categorical:
            raise ValueError(
                f"baseline='optimal-token' needs one discrete action per step, got actions in "
                f"{env.single_action_space} and a {type(self.policy).__name__}, whose is_categorical is False; "
                "use baseline='leave-one-out'"
            )
        if self.baseline == "greedy":
            check_replays(env, "baseline='greedy'")

    @override
    def collect_rollout(self, callback: BaseCallback) -> Rollout | None:
        rollout = super().collect_rollout(callback)
        if rollout is None or self.baseline != "greedy":
            return rollout
        greedy = self.replay(rollout)
        paid = returns.episode_return(greedy.rewards, greedy.mask, self.gamma)[:, 0].where(greedy.ok, torch.nan)
        return rollout.with_extras(**{GREEDY_RETURN: paid})

    @override
    def advantages(self, rollout: Rollout) -> torch.Tensor:
        gains = RETURNS[self.returns](rollout.rewards, rollout.mask, self.gamma)
        gains = returns.hold_last(gains, rollout.mask)
        return gains - self.subtracted(gains, rollout)
