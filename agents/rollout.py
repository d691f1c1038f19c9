"""A rollout: N complete episodes, padded in time, with a mask.

`rewards[:, t]` is caused by `actions[:, t]`; `log_probs[:, t]` is of `actions[:, t]` given the observation at t.
Masks come from the lengths of episodes, never from token equality. What stands in masked cells has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch

Obs = torch.Tensor | dict[str, torch.Tensor]
NO_VERDICT = ("timeout", "error", "not_applicable")


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
        extras: further figures of each episode for the log, by name, NaN where an episode has none [N]: "level",
            "parts/NAME" of the reward, and "timeout", "error", "not_applicable" where there is no verdict (1.0 or 0.0).
        final_observations: what episodes were looking at when they were cut off (truncated, not terminated), where
            there is such an episode; zeros for the others [N, ...].
        values: of the critic where there is one [N, T].
        final_values: of those final observations [N], 0 for the other episodes.
        value_targets: what the critic is fitted to [N, T]; made by the agent.
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
    extras: dict[str, torch.Tensor] = field(default_factory=dict)
    final_observations: Obs | None = None
    values: torch.Tensor | None = None
    final_values: torch.Tensor | None = None
    value_targets: torch.Tensor | None = None
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

    def cut_off(self, obs_from_actions: bool) -> Rollout | None:
        """Return what follows the last step of episodes cut off, as episodes of one step; None if none was cut off."""
        if self.final_observations is None:
            return None
        seen = self.final_observations if obs_from_actions else map_obs(lambda x: x[:, None], self.final_observations)
        cut = self.truncated & ~self.terminated
        return Rollout.of_demonstrations(seen, torch.zeros_like(self.actions[:, :1]), cut[:, None])

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """Sum [N, T] over the learnable steps; NaN elsewhere has no effect, neither here nor in the gradient."""
        return values.where(self.learnable, 0).sum()

    def select(self, rows: Any) -> Rollout:
        """Return the rollout of some rows (a slice, an index or a bool mask over N)."""
        chosen: dict[str, Any] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            chosen[entry.name] = None if value is None else map_obs(lambda x: x[rows], value)
        return Rollout(**chosen)

    def split(
        self, rows: int | None = None, costs: torch.Tensor | None = None, budget: int | None = None
    ) -> Iterator[Rollout]:
        """Yield the rollout in micro-batches of consecutive rows.

        Args:
            rows: at most this many; None for any number.
            costs: of each row [N], where there is a budget.
            budget: the rows of a micro-batch cost no more together, unless a single one does; None for no limit.
        """
        cost = [0] * len(self) if costs is None or budget is None else costs.tolist()
        start, spent = 0, 0
        for row in range(len(self)):
            full = (rows is not None and row - start == rows) or (budget is not None and spent + cost[row] > budget)
            if full and row > start:
                yield self.select(slice(start, row))
                start, spent = row, 0
            spent += cost[row]
        yield self.select(slice(start, len(self))) if start else self


def join(rollouts: Sequence[Rollout], obs_from_actions: bool) -> Rollout:
    """Return freshly collected rollouts as one; their groups stay apart.

    Args:
        rollouts: at least one, of the same policy.
        obs_from_actions: whether they keep first observations only; see `Policy`.
    """
    stepwise = {"actions", "log_probs", "rewards", "mask", *([] if obs_from_actions else ["observations"])}
    steps = max(rollout.mask.shape[1] for rollout in rollouts)
    parts: dict[str, list[Any]] = {entry.name: [] for entry in fields(Rollout)}
    offset = 0
    for rollout in rollouts:
        for name, values in parts.items():
            value = getattr(rollout, name)
            values.append(map_obs(lambda x: _pad_steps(x, steps), value) if name in stepwise else value)
        parts["groups"][-1] = rollout.groups - rollout.groups.min() + offset
        offset = int(parts["groups"][-1].max()) + 1
    figures = list(dict.fromkeys(name for extras in parts["extras"] for name in extras))
    parts["extras"] = [
        {name: extras.get(name, rollout.success.new_full((len(rollout),), absent(name))) for name in figures}
        for rollout, extras in zip(rollouts, parts["extras"], strict=True)
    ]
    example = next((obs for obs in parts["final_observations"] if obs is not None), None)
    if example is not None:
        for i, seen in enumerate(parts["final_observations"]):
            if seen is None:
                shape = (len(rollouts[i]),)
                parts["final_observations"][i] = map_obs(lambda x: x.new_zeros(shape + x.shape[1:]), example)  # noqa: B023
    joined: dict[str, Any] = {
        name: None if values[0] is None else map_many(torch.cat, values) for name, values in parts.items()
    }
    return Rollout(**joined)


def absent(figure: str) -> float:
    """Return what an extra figure is for an episode that does not have it: 0 for a kind of failure, else NaN."""
    return 0.0 if figure in NO_VERDICT else float("nan")


def map_many(function: Any, observations: Sequence[Any]) -> Obs:
    """Apply a function of a list of tensors to a list of observations, key by key."""
    first = observations[0]
    if isinstance(first, dict):
        return {key: function([obs[key] for obs in observations]) for key in first}
    return function(list(observations))


def _pad_steps(values: torch.Tensor, steps: int) -> torch.Tensor:
    """Append zeros to [N, T, ...] up to this many steps."""
    return torch.cat([values, values.new_zeros(len(values), steps - values.shape[1], *values.shape[2:])], 1)
