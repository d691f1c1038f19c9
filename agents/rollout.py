"""A rollout: N complete episodes, padded in time, with a mask.

`rewards[:, t]` is caused by `actions[:, t]`; `log_probs[:, t]` is of `actions[:, t]` given the observation at t.
Masks come from the lengths of episodes, never from token equality. What stands in masked cells has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch

Obs = torch.Tensor | dict[str, torch.Tensor]


def map_obs(function: Any, obs: Obs) -> Obs:
    """Apply a function to every tensor of an observation."""
    return {key: function(value) for key, value in obs.items()} if isinstance(obs, dict) else function(obs)


@dataclass
class Rollout:
    """N complete episodes of up to T steps.

    Attributes:
        observations: what the policy needs to evaluate the actions again: all observations [N, T, ...], or, for a
            policy whose later observations are the first one plus the actions, the first one [N, ...].
        actions: [N, T] or [N, T, A].
        log_probs: of the actions, while acting [N, T].
        rewards: [N, T].
        mask: which steps exist, bool [N, T].
        terminated, truncated: how each episode ended, bool [N].
        groups: episodes with equal numbers share a prompt, int64 [N].
        valid: False where no verdict was reached, bool [N]; such episodes teach nothing.
        success: 1.0, 0.0, or NaN where the environment does not say, [N].
        values: of the critic where there is one [N, T].
        advantages: credit of each step [N, T]; made by the agent.
        weights: how the steps are added up [N, T]; made by the agent.
        ref_log_probs: of the frozen reference [N, T], where the KL anchor needs them.
    """

    observations: Obs
    actions: torch.Tensor
    log_probs: torch.Tensor
    rewards: torch.Tensor
    mask: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    groups: torch.Tensor
    valid: torch.Tensor
    success: torch.Tensor
    values: torch.Tensor | None = None
    advantages: torch.Tensor | None = None
    weights: torch.Tensor | None = None
    ref_log_probs: torch.Tensor | None = None

    @classmethod
    def of_demonstrations(cls, observations: Obs, actions: torch.Tensor, mask: torch.Tensor) -> Rollout:
        """Return somebody else's episodes as a rollout: observations as above, actions [N, T] and their mask [N, T]."""
        n, device = mask.shape[0], mask.device
        zeros = torch.zeros(mask.shape, device=device)
        yes = torch.ones(n, dtype=torch.bool, device=device)
        return cls(
            observations=observations,
            actions=actions,
            log_probs=zeros,
            rewards=zeros,
            mask=mask,
            terminated=yes,
            truncated=~yes,
            groups=torch.arange(n, device=device),
            valid=yes,
            success=torch.full((n,), torch.nan, device=device),
        )

    def __len__(self) -> int:
        """Return N."""
        return self.mask.shape[0]

    @property
    def lengths(self) -> torch.Tensor:
        """Steps of each episode, int64 [N]."""
        return self.mask.sum(1)

    @property
    def returns(self) -> torch.Tensor:
        """Undiscounted sum of rewards of each episode [N]."""
        return self.rewards.where(self.mask, 0).sum(1)

    @property
    def learnable(self) -> torch.Tensor:
        """Steps that exist in episodes with a verdict, bool [N, T]."""
        return self.mask & self.valid[:, None]

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """Sum [N, T] over the learnable steps; NaN elsewhere has no effect, neither here nor in the gradient."""
        return values.where(self.learnable, 0).sum()

    def select(self, rows: Any) -> Rollout:
        """Return the rollout of some rows (a slice, an index or a bool mask over N)."""
        chosen: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            chosen[field.name] = None if value is None else map_obs(lambda x: x[rows], value)
        return Rollout(**chosen)

    def split(self, rows: int | None) -> Iterator[Rollout]:
        """Yield the rollout in micro-batches of at most this many rows; whole where None."""
        step = rows or len(self)
        for start in range(0, len(self), step):
            yield self.select(slice(start, start + step))
