"""A rollout: N complete episodes, padded in time, with a mask.

`rewards[:, t]` is caused by `actions[:, t]`; `log_probs[:, t]` is of `actions[:, t]` given the observation at t.
Masks come from the lengths of episodes, never from token equality. Masked cells may hold anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import torch

from rlenv._status import NOT_APPLICABLE, OK

from .devices import take_rows

Obs = torch.Tensor | dict[str, torch.Tensor]
ENV_RETURN = "env_return"  # in `extras`
GREEDY_RETURN = "greedy_return"  # in `extras`
PARTS = "parts/"  # in `extras`, before the name of a part of the verdict
COUNTS = ("turns", "tool_calls", "tool_errors")  # in the infos at an episode's end, and in `extras`
STEPWISE = {"observations", "actions", "log_probs", "rewards", "mask", "values", "positions"}  # [N, T, ...]
STEPWISE |= {"advantages", "weights"}  # of a batch
NOTED = "noted/"  # in `extras`, before the name of a metric of the surrogate
CLIPPED = "train/clip_fraction"
OF_EPISODES = {"feedback"}  # extras whose second dimension is not T, whatever its size
PROVIDERS = {  # of what not every rollout has
    "values": "a policy with a critic",
    "value_targets": "a policy with a critic",
    "ref_log_probs": "a KL anchor",
}


def map_obs(function: Any, obs: Obs) -> Obs:
    """Apply a function to every tensor of an observation."""
    return {key: function(value) for key, value in obs.items()} if isinstance(obs, dict) else function(obs)


@dataclass(repr=False)
class Rollout:
    """N complete episodes of up to T steps, as they were collected.

    Attributes:
        observations: what the policy needs to evaluate the actions again: all observations [N, T, ...], or the first
            one only [N, ...] for policies whose later observations follow from it and the actions.
        actions: [N, T] or [N, T, A].
        log_probs: of the actions, while acting [N, T]; in an update with `mismatch`, of a training pass before it.
        rewards: [N, T].
        mask: which steps exist, bool [N, T].
        terminated: whether the episode is over for good, bool [N].
        truncated: whether it was cut off, bool [N]; a completion that is cut off is also over for good.
        groups: episodes with equal numbers share a prompt, int64 [N].
        status: of the verdicts, as numbers in `rlenv/_status.py`, int64 [N]; only episodes with `OK` are trained on. An
            environment without verdicts has no others.
        success: 1.0, 0.0, or NaN if the environment does not say, [N].
        extras: further tensors of each episode [N, ...] or of each step [N, T, ...], by name; see below.
        final_observations: what truncated (not terminated) episodes saw after their last step, zeros for the others
            [N, ...]; None if there is no such episode.
        values: of the critic, if any [N, T].
        positions: of text with replies between the actions, the column of each action in the final tokens, int64
            [N, T]; then observations["tokens"] are the final tokens of episodes with replies (others may have those of
            the first observation only) and observations["length"] is the first observation's. None if the actions of
            all episodes follow the first observation without gaps.

    In `extras` are numbers of each episode for the log, NaN for episodes that have none [N]: "level", `COUNTS`,
    "parts/NAME" of the reward, `GREEDY_RETURN`, `ENV_RETURN` (before the learner changed the rewards). What an agent
    declares (`Agent.extras`, in `training/extras.py`) comes in an update:

        "acting_log_probs": while acting, if `log_probs` come from a training pass [N, T].
        "importance": a constant factor of the surrogate, if another policy acted [N, T].
        "ref_log_probs": of the KL anchor's reference [N, T].
        "final_values": of the final observations [N], 0 for the other episodes.
        "value_targets": the critic's targets [N, T].
        "score_norms": |∇ log π(a)|² in the logits of each step (`Policy.score_norms`) [N, T].
        "teacher_log_probs", "teacher_kl": of the teacher, and KL(π ‖ teacher) [N, T].
        "feedback": the tokens of what the verdicts say about the answers, then -1, int64 [N, F].
        "hinted": a teacher's observations in place of `observations`: the same after a hint.
        "taught": which episodes a teacher that reads hints has one for, bool [N].
        "reply_weights": of each token of a reply in the loss, for each episode [N].
    """

    observations: Obs
    actions: torch.Tensor
    log_probs: torch.Tensor
    rewards: torch.Tensor
    mask: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    groups: torch.Tensor
    status: torch.Tensor
    success: torch.Tensor
    extras: dict[str, Any] = field(default_factory=dict)
    final_observations: Obs | None = None
    values: torch.Tensor | None = None
    positions: torch.Tensor | None = None

    @classmethod
    def of_demonstrations(
        cls, observations: Obs, actions: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor | None = None
    ) -> Rollout:
        """Return episodes that no agent played, such as demonstrations: observations as above, the others [N, T]."""
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
            status=torch.full((n,), OK, device=device),
            success=torch.full((n,), torch.nan, device=device),
            positions=positions,
        )

    def __repr__(self) -> str:
        """Return how much it holds."""
        return f"<{type(self).__name__} of {len(self)} episodes, {int(self.mask.sum())} steps>"

    def __len__(self) -> int:
        """Return N."""
        return self.mask.shape[0]

    @property
    def lengths(self) -> torch.Tensor:
        """Steps of each episode, int64 [N]."""
        return self.mask.sum(1)

    @property
    def columns(self) -> torch.Tensor:
        """Of text, the column of each action in the final tokens, int64 [N, T]; anything in masked cells."""
        if self.positions is not None:
            return self.positions
        assert isinstance(self.observations, dict)
        return self.observations["length"][:, None] + torch.arange(self.mask.shape[1], device=self.mask.device)

    @property
    def returns(self) -> torch.Tensor:
        """Undiscounted sum of rewards of each episode [N]."""
        return self.rewards.where(self.mask, 0).sum(1)

    @property
    def ok(self) -> torch.Tensor:
        """Which episodes have a verdict, if their environment gives any, bool [N]."""
        return self.status == OK

    @property
    def learnable(self) -> torch.Tensor:
        """Steps that exist in episodes with a verdict, bool [N, T]."""
        return self.mask & self.ok[:, None]

    @cached_property
    def _steps(self) -> torch.Tensor:
        return self.mask.flatten().nonzero()[:, 0]

    def existing(self, values: torch.Tensor) -> torch.Tensor:
        """Return the cells of [N, T, ...] at the steps that exist, in order of (episode, step) [M, ...]."""
        return values.flatten(0, 1)[self._steps]

    def in_cells(self, values: torch.Tensor) -> torch.Tensor:
        """Return [N, T] with one value per existing step [M] in its cell, else 0: the reverse of `existing`."""
        exists = self.mask.flatten()
        place = exists.cumsum(0).where(exists, 0)  # counts from 1; masked cells take the zero put before the values
        return take_rows(torch.nn.functional.pad(values, (1, 0)), place).view(self.mask.shape)

    def required(self, name: str) -> torch.Tensor:
        """Return the values of the critic or an extra, which not every rollout has.

        Raises:
            ValueError: if this one has not.
        """
        found = self.values if name == "values" else self.extras.get(name)
        if found is None:
            needs = PROVIDERS.get(name, f"an agent with {name!r} among its extras")
            raise ValueError(f"this rollout has no {name}: they need {needs}")
        return found

    def with_extras(self, **tensors: Any) -> Self:
        """Return the same episodes with these tensors among their extras.

        Raises:
            ValueError: for the name of an attribute, which it would hide.
        """
        if taken := tensors.keys() & {entry.name for entry in fields(Batch)}:
            raise ValueError(f"{min(taken)!r} is an attribute of batches; choose another name for the extra")
        return replace(self, extras=self.extras | tensors)

    def tensors(self) -> dict[str, Any]:
        """Return all observations and tensors by name, including the extras."""
        own = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "extras"}
        return {name: value for name, value in own.items() if value is not None} | self.extras

    def with_tensors(self, tensors: Mapping[str, Any]) -> Self:
        """Return the same episodes with these tensors; names without a field become extras."""
        names = {entry.name for entry in fields(self)}
        own = {name: value for name, value in tensors.items() if name in names}
        return replace(self, **own).with_extras(**{name: tensors[name] for name in tensors if name not in names})

    @property
    def sampling_log_probs(self) -> torch.Tensor:
        """Log-probabilities of the actions while acting [N, T], also if `log_probs` are the training pass's."""
        found: torch.Tensor = self.extras.get("acting_log_probs", self.log_probs)
        return found

    @property
    def as_taught(self) -> Self:
        """The same steps as a teacher reads them."""
        if "hinted" not in self.extras:
            return self
        extras = dict(self.extras)
        hinted, positions = extras.pop("hinted"), self.positions
        if positions is not None and isinstance(self.observations, dict):
            positions = positions + (hinted["length"] - self.observations["length"])[:, None]
        return replace(self, observations=hinted, positions=positions, extras=extras)

    def where_taught(self, values: torch.Tensor) -> torch.Tensor:
        """Return [N, T] with 0 in the episodes for which the teacher has no hint."""
        taught = self.extras.get("taught")
        return values if taught is None else values.where(taught[:, None], 0)

    def after_truncation(self, obs_from_actions: bool) -> Rollout | None:
        """Return the observations after the last step of truncated episodes, as episodes of one step, or None."""
        if self.final_observations is None:
            return None
        seen = self.final_observations if obs_from_actions else map_obs(lambda x: x[:, None], self.final_observations)
        cut = self.truncated & ~self.terminated
        return Rollout.of_demonstrations(seen, torch.zeros_like(self.actions[:, :1]), cut[:, None])

    def through_truncation(self) -> Rollout | None:
        """Return truncated episodes with one step more, which sees what came after their last step, or None."""
        if (after := self.final_observations) is None:
            return None
        longer = self.mask.shape[1] + 1
        steps, lengths = torch.arange(longer, device=self.mask.device), self.lengths[:, None]

        def with_final(seen: torch.Tensor, final: torch.Tensor) -> torch.Tensor:
            is_final = (steps == lengths).view(len(self), longer, *[1] * (final.ndim - 1))
            return torch.where(is_final, final[:, None], _pad_steps(seen, longer))

        seen = map_many(lambda both: with_final(*both), (self.observations, after))
        cut = (self.truncated & ~self.terminated)[:, None]
        return Rollout.of_demonstrations(seen, _pad_steps(self.actions, longer), cut & (steps <= lengths))

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """Sum [N, T] over the learnable steps; NaN elsewhere has no effect, neither here nor in the gradient."""
        return values.where(self.learnable, 0).sum()

    def mapped(self, function: Callable[[Any, bool], Any]) -> Self:
        """Return a rollout made of `function(value, stepwise)`, of every observation and tensor that there is.

        Args:
            function: its second argument says whether the value is of steps [N, T, ...], or of episodes [N, ...].
        """
        made = {name: function(value, self._is_stepwise(name, value)) for name, value in self.tensors().items()}
        extras = {name: made.pop(name) for name in self.extras}
        return type(self)(**made, extras=extras)

    def _is_stepwise(self, name: str, value: Any) -> bool:
        if name not in self.extras:
            return name in STEPWISE
        return name not in OF_EPISODES and getattr(value, "shape", ())[:2] == self.mask.shape

    def select(self, rows: Any) -> Self:
        """Return some of the rows (a slice, an index or a bool mask over N)."""
        if isinstance(rows, slice) and rows.indices(len(self)) == (0, len(self), 1):
            return self
        return self.mapped(lambda value, _: map_obs(lambda x: x[rows], value))

    def split(
        self, rows: int | None = None, costs: torch.Tensor | None = None, budget: int | None = None
    ) -> Iterator[Self]:
        """Yield the rollout in micro-batches of consecutive rows.

        Args:
            rows: at most this many; None for any number.
            costs: of each row [N]; needed with a budget.
            budget: the most that the rows of a micro-batch may cost together, unless one row costs more; None for no
                limit.
        """
        cost = [0] * len(self) if costs is None or budget is None else costs.tolist()
        start, spent = 0, 0
        for row in range(len(self)):
            full = (rows is not None and row - start == rows) or (budget is not None and spent + cost[row] > budget)
            if full and row > start:
                yield self.select(slice(start, row))
                start, spent = row, 0
            spent += cost[row]
        if len(self):
            yield self.select(slice(start, len(self)))


@dataclass(kw_only=True, repr=False)
class Batch(Rollout):
    """Episodes that are ready to train on.

    Attributes:
        advantages: credit of each step [N, T].
        weights: of each step in the loss [N, T].
    """

    advantages: torch.Tensor
    weights: torch.Tensor

    @classmethod
    def of(cls, rollout: Rollout, **tensors: Any) -> Batch:
        """Return a rollout with these attributes added or replaced."""
        return cls(**{entry.name: getattr(rollout, entry.name) for entry in fields(Rollout)} | tensors)

    def note_clipped(self, steps: torch.Tensor) -> None:
        """Say which steps a surrogate clips, bool [N, T]: their share is logged as `train/clip_fraction`."""
        self.note(CLIPPED, steps)

    def note(self, name: str, values: torch.Tensor) -> None:
        """Add a metric of a surrogate: the sum of [N, T] over the steps, or the reduction in `Agent.reductions`.

        Raises:
            ValueError: for values of another shape.
        """
        if (shape := tuple(values.shape)) != (wanted := tuple(self.mask.shape)):
            raise ValueError(f"note({name!r}) got values of shape {shape}; pass one per step, [N, T] = {wanted}")
        self.extras[NOTED + name] = values.detach()

    def noted(self) -> dict[str, torch.Tensor]:
        """Return the metrics that were noted, numbers of [N, T] by name, and forget them."""
        names = [name for name in self.extras if name.startswith(NOTED)]
        return {name.removeprefix(NOTED): self.extras.pop(name) for name in names}


RolloutT = TypeVar("RolloutT", bound=Rollout)


def without_verdicts(rollout: Rollout, where: torch.Tensor) -> Rollout:
    """Return a rollout with the status "not_applicable" where this says so, bool [N]."""
    return replace(rollout, status=rollout.status.masked_fill(where, NOT_APPLICABLE))


def join(rollouts: Sequence[RolloutT], obs_from_actions: bool) -> RolloutT:
    """Return rollouts or batches as one; groups are renumbered only if rollouts use the same numbers.

    Args:
        rollouts: at least one, of the same policy; some may have no episodes.
        obs_from_actions: whether they keep first observations only; see `Policy`.
    """
    rollouts = [rollout for rollout in rollouts if len(rollout)] or rollouts[:1]
    if len(rollouts) == 1:
        return rollouts[0]
    steps = max(rollout.mask.shape[1] for rollout in rollouts)
    if any(rollout.positions is not None for rollout in rollouts):
        rollouts = [replace(rollout, positions=rollout.columns) for rollout in rollouts]
    figures = list(dict.fromkeys(name for rollout in rollouts for name in rollout.extras))
    seen = next((each.final_observations for each in rollouts if each.final_observations is not None), None)
    padded: list[dict[str, Any]] = []
    offset = 0
    for rollout in rollouts:
        n = len(rollout)
        lacking = rollout.success.new_full((n,), torch.nan)
        groups = rollout.groups + (offset - rollout.groups.min()).clamp(min=0)
        offset = int(groups.max()) + 1
        after = rollout.final_observations
        if after is None and seen is not None:
            after = map_obs(lambda x: x.new_zeros(n, *x.shape[1:]), seen)  # noqa: B023
        extras = {name: rollout.extras.get(name, lacking) for name in figures}
        same = replace(rollout, groups=groups, final_observations=after, extras=extras)
        first = same.observations if obs_from_actions else None
        longer = same.mapped(
            lambda value, stepwise: (
                map_obs(lambda x: _pad_steps(x, steps), value)
                if stepwise and value is not first  # noqa: B023
                else value
            )
        )
        padded.append(longer.tensors())
    return rollouts[0].with_tensors({name: map_many(torch.cat, [part[name] for part in padded]) for name in padded[0]})


def map_many(function: Any, observations: Sequence[Any]) -> Obs:
    """Apply a function of a list of tensors to a list of observations, key by key."""
    first = observations[0]
    if isinstance(first, dict):
        return {key: function([obs[key] for obs in observations]) for key in first}
    return function(list(observations))


def _pad_steps(values: torch.Tensor, steps: int) -> torch.Tensor:
    """Append zeros to [N, T, ...] up to this many steps."""
    return torch.cat([values, values.new_zeros(len(values), steps - values.shape[1], *values.shape[2:])], 1)
