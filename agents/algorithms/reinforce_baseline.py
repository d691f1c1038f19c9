"""REINFORCE with a baseline, over the whole axis of baselines and both returns."""

from __future__ import annotations

from typing import Any

import torch

from ..agent import Agent
from ..checks import check_choice
from ..estimators import aggregation, losses, returns
from ..estimators.baselines import BASELINES, RunningMean
from ..rollout import Rollout

RETURNS = {"return-to-go": returns.return_to_go, "episode": returns.episode_return}
OF_A_GROUP = ("group-mean", "leave-one-out")


class ReinforceBaseline(Agent):
    """REINFORCE with return-to-go and a baseline (Williams 1992; Sutton & Barto 2018, section 13.4).

        A_{i,t} = G_{i,t} - b_{i,t}        L = - 1/N Σ_i Σ_t A_{i,t} log π(a_{i,t} | s_{i,t})

    Args:
        policy: see `Agent`.
        env: see `Agent`.
        baseline: "none", "running-mean", "batch-mean", "group-mean", "leave-one-out" or "value"; the table in
            `estimators/baselines.py` says what each is and whether it biases the gradient.
        returns: "return-to-go" (G_t = Σ_{k≥t} γ^{k-t} r_k) or "episode" (R at every step). With γ < 1 the former
            leaves out the factor γ^t of the exact gradient, as the field does.
        kwargs: see `Agent`.

    Raises:
        ValueError: for an unknown baseline or return, or a group baseline over groups of one.
    """

    weights = staticmethod(aggregation.sequence_sum)
    default_group_size = 4

    def __init__(
        self,
        policy: Any,
        env: Any,
        *,
        baseline: str = "leave-one-out",
        returns: str = "return-to-go",
        **kwargs: Any,
    ) -> None:
        self.baseline_name = check_choice("baseline", baseline, BASELINES)
        self.returns_name = check_choice("returns", returns, RETURNS)
        self.uses_critic, self.compares_groups = baseline == "value", baseline in OF_A_GROUP
        super().__init__(policy, env, **kwargs)
        self.settings |= {"baseline": baseline, "returns": returns}
        self.baseline = BASELINES[baseline]()

    def advantages(self, rollout: Rollout) -> torch.Tensor:
        """Return G - b [N, T]."""
        gains = RETURNS[self.returns_name](rollout.rewards, rollout.mask, self.gamma)
        gains = returns.hold_last(gains, rollout.mask)
        return gains - self.baseline(gains, rollout)

    def surrogate(self, log_probs: torch.Tensor, batch: Rollout) -> torch.Tensor:
        """Return A log π [N, T]."""
        assert batch.advantages is not None
        return losses.policy_gradient(log_probs, batch.advantages)

    def state_dict(self) -> dict[str, Any]:
        """Return the running mean, where that is the baseline."""
        return self.baseline.state_dict() if isinstance(self.baseline, RunningMean) else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        if isinstance(self.baseline, RunningMean):
            self.baseline.load_state_dict(state)
