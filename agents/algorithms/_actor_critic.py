"""Generalized advantages and a critic's targets, shared by the agents with a learned critic."""

from __future__ import annotations

from typing import Any

import torch
from typing_extensions import override

from rlenv._setting import ANY
from rlenv._settings import OrDefault, setting

from ..estimators.gae import generalized_advantage
from ..rollout import Rollout
from ..training.agent import Agent


class ActorCritic(Agent):
    """An agent whose advantages come from a critic.

        Â_t = Σ_k (γλ)^k δ_{t+k}        δ_t = r_t + γ V(s_{t+1}) - V(s_t)        target_t = Â_t + V(s_t)

    V(s_{t+1}) is 0 after a step that terminated the episode and the critic's value after one that truncated it.

    On a language model the critic is a head on the policy's trunk that leaves the trunk alone, or, with
    `policy_kwargs={"critic": "separate"}`, a separate copy of the model.
    """

    uses_critic = True
    bootstraps = True

    gae_lambda: OrDefault[float] = setting(
        default=None, help="λ, from 0 (one-step error) to 1 (return minus value).", by_kind={ANY: 1.0}, low=0, high=1
    )

    @override
    def advantages(self, rollout: Rollout) -> torch.Tensor:
        return advantages_of(self, rollout, self.gae_lambda)


def advantages_of(agent: Any, rollout: Rollout, gae_lambda: float | torch.Tensor) -> torch.Tensor:
    """Return generalized advantages [N, T] with the agent's critic and discount, at one λ or one per episode."""
    values, final_values = rollout.required("values"), rollout.extras.get("final_values")
    return generalized_advantage(rollout.rewards, values, rollout.learnable, agent.gamma, gae_lambda, final_values)
