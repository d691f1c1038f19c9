"""What agents with a learned critic share: generalized advantages and the critic's targets."""

from __future__ import annotations

from typing import Any

import torch

from .agent import Agent
from .checks import check_number
from .estimators.returns import generalized_advantage
from .rollout import Rollout


class ActorCritic(Agent):
    """An agent whose advantages come from a critic.

        Â_t = Σ_k (γλ)^k δ_{t+k}        δ_t = r_t + γ V(s_{t+1}) - V(s_t)        target_t = Â_t + V(s_t)

    V(s_{t+1}) is 0 after a step that terminated the episode and the critic's value after one that only cut it off.

    Args:
        policy: see `Agent`. On a language model the critic is a head on the policy's trunk that leaves the trunk
            alone, or, with `policy_kwargs={"critic": "separate"}`, a copy of the model with a trunk of its own.
        env: see `Agent`.
        gae_lambda: λ, 0 (one-step error) to 1 (return less value). None: the algorithm's default, else 1.
        kwargs: see `Agent`.

    Raises:
        ValueError: for λ out of range, and as `Agent` says.
    """

    uses_critic = True

    def __init__(self, policy: Any, env: Any, *, gae_lambda: float | None = None, **kwargs: Any) -> None:
        if gae_lambda is not None:
            check_number("gae_lambda", gae_lambda, low=0.0, high=1.0)
        super().__init__(policy, env, **kwargs)
        default = self.chosen("gae_lambda", gae_lambda)
        self.gae_lambda = 1.0 if default is None else float(default)
        self.settings["gae_lambda"] = self.gae_lambda

    def advantages(self, rollout: Rollout) -> torch.Tensor:
        """Return Â [N, T]."""
        assert rollout.values is not None
        return generalized_advantage(
            rollout.rewards, rollout.values, rollout.learnable, self.gamma, self.gae_lambda, rollout.final_values
        )

    def critic_targets(self, rollout: Rollout) -> torch.Tensor:
        """Return Â + V, the λ-return [N, T]."""
        assert rollout.values is not None
        return ActorCritic.advantages(self, rollout) + rollout.values
