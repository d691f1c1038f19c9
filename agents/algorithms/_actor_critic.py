"""What agents with a learned critic share: generalized advantages and the critic's targets."""

from __future__ import annotations

from typing import Any, Unpack

import torch
from typing_extensions import override

from ..core.checks import check_number
from ..core.rollout import Rollout
from ..core.settings import AgentSettings
from ..estimators.returns import generalized_advantage
from ..trainer.agent import Agent


class ActorCriticSettings(AgentSettings, total=False):
    """Keyword arguments of `ActorCritic`."""

    gae_lambda: float | None


class ActorCritic(Agent):
    """An agent whose advantages come from a critic.

        Â_t = Σ_k (γλ)^k δ_{t+k}        δ_t = r_t + γ V(s_{t+1}) - V(s_t)        target_t = Â_t + V(s_t)

    V(s_{t+1}) is 0 after a step that terminated the episode and the critic's value after one that truncated it.

    Args:
        policy: on a language model the critic is a head on the policy's trunk that leaves the trunk alone, or, with
            `policy_kwargs={"critic": "separate"}`, a separate copy of the model.
        gae_lambda: λ, 0 (one-step error) to 1 (return less value). None: 0.95 for PPO on control, else 1.
    """

    uses_critic = True

    def __init__(
        self, policy: Any, env: Any, *, gae_lambda: float | None = None, **settings: Unpack[AgentSettings]
    ) -> None:
        if gae_lambda is not None:
            check_number("gae_lambda", gae_lambda, low=0.0, high=1.0)
        super().__init__(policy, env, **settings)
        self.gae_lambda = check_number("gae_lambda", self.or_default("gae_lambda", gae_lambda), low=0.0, high=1.0)

    @override
    def advantages(self, rollout: Rollout) -> torch.Tensor:
        values, final_values = rollout.required("values"), rollout.final_values
        return generalized_advantage(
            rollout.rewards, values, rollout.learnable, self.gamma, self.gae_lambda, final_values
        )

    @override
    def critic_targets(self, rollout: Rollout, advantages: torch.Tensor) -> torch.Tensor:
        return advantages + rollout.required("values")
