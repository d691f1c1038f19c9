"""The record of a rollout's episodes: which step of which slot is which step of which episode.

Episodes are numbered as they start, and numbers from N on do not count: taking whichever N finish first would favour
short ones. Slots that have finished or play an episode that does not count have number N.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..devices import to_device
from ..rollout import Rollout, map_many, map_obs
from .env_protocol import Step
from .outcomes import Outcomes
from .steps import Steps, to_single

RESTART_SHARE = 1 / 8  # of all slots; reading prompts takes a separate pass, so several are read at a time


class Record:
    """The bookkeeping of one rollout: the episode that each slot plays, and the steps of all episodes.

    Arrays of the environment stay on the host until the rollout is put together.

    Args:
        num_episodes: N.
        num_slots: B.
        device: of the rollout.
        groups_span_slots: whether group numbers are unique over all slots; None if the environment has no groups.
        first_only: whether only the first observation of an episode is kept.

    Attributes:
        episode: the number of each slot's episode, N unless it counts [B].
        column: how many actions it has had [B].
        without_end: steps since an episode ended.
        outcomes: of the episodes.
    """

    def __init__(
        self, num_episodes: int, num_slots: int, device: torch.device, groups_span_slots: bool | None, first_only: bool
    ) -> None:
        self.num_episodes, self.device = num_episodes, device
        self.groups_span_slots, self.first_only = groups_span_slots, first_only
        self.started = self.finished = self.without_end = 0
        self.episode = np.full(num_slots, num_episodes)
        self.column = np.zeros(num_slots, dtype=np.int64)
        self._none = np.zeros(num_slots, dtype=bool)
        self.steps = Steps()
        self.first: Any = None  # observations of the episodes [N, ...]
        self.final: Any = None  # observations of the truncated ones [N, ...]
        self.has_replies = np.zeros(num_episodes + 1, dtype=bool)  # which episodes have replies
        self.lengths = np.zeros(num_episodes, dtype=np.int64)
        self.groups = np.zeros(num_episodes, dtype=np.int64)
        self.terminated, self.truncated = np.zeros((2, num_episodes), dtype=bool)
        self.outcomes = Outcomes(num_episodes)

    @property
    def unfinished(self) -> bool:
        """Whether some of the N episodes still run or have not started."""
        return self.finished < self.num_episodes

    def to_restart(self) -> np.ndarray:
        """Return which finished slots start an episode that counts, bool [B]; see `RESTART_SHARE`."""
        starts = np.zeros(len(self.episode), dtype=bool)
        if self.started >= self.num_episodes:
            return starts
        finished = np.flatnonzero(self.episode == self.num_episodes)
        if len(finished) >= RESTART_SHARE * len(self.episode):
            starts[finished[: self.num_episodes - self.started]] = True
        return starts

    def start(self, starts: np.ndarray, infos: dict[str, Any]) -> None:
        """Number the episodes that start in these slots (bool [B])."""
        slots = np.flatnonzero(starts)
        numbers = self.started + np.arange(len(slots))
        self.started += len(slots)
        self._assign(slots, np.minimum(numbers, self.num_episodes))
        if self.groups_span_slots is not None and "group" in infos:
            slots = self._counting(starts)
            group = np.asarray(infos["group"])[slots]
            # If every slot numbers its groups by itself, equal numbers in two slots are different groups.
            own = group if self.groups_span_slots else group * len(self.episode) + slots
            self.groups[self.episode[slots]] = own

    def see(self, obs: Any, starts: np.ndarray) -> Any:
        """Keep the observations of all slots before a step; return them in single precision.

        Args:
            obs: [B, ...].
            starts: where an episode begins with it, bool [B].
        """
        obs = map_obs(to_single, obs)
        if not self.first_only:
            self.steps.note("observations", obs)
        elif np.count_nonzero(starts):
            slots = self._counting(starts)
            self.first = self._keep(self.first, self.episode[slots], obs, slots)
        return obs

    def note_actions(self, actions: Any, log_probs: Any) -> None:
        """Keep the actions of every slot, before the environment gets them, which may write into them."""
        self.steps.note("actions", actions)
        self.steps.note("log_probs", log_probs)

    def add(self, step: Step) -> None:
        """Write a step of every slot, and close the episodes that ended with it."""
        waited = self._none if step.waited is None else step.waited
        self.steps.place(self.episode, self.column, waited)
        self.steps.note("rewards", step.rewards)
        if step.appended is not None:
            appended = np.broadcast_to(step.appended, waited.shape)
            self.steps.note("appended", appended)
            if self.first_only:  # else the observations of all steps are kept, replies included
                self.has_replies[self.episode[appended > 0]] = True
        self.column = self.column + (1 if step.waited is None else ~waited)
        self.without_end += 1
        if np.count_nonzero(step.dones):  # `any` takes four times as long
            self._finish(step)

    def _assign(self, slots: np.ndarray, episodes: Any) -> None:
        """Begin these episodes in these slots."""
        self.episode = self.episode.copy()  # past steps keep theirs
        self.episode[slots] = episodes
        self.column[slots] = 0

    def _counting(self, slots: np.ndarray) -> np.ndarray:
        """Return which of the slots (bool [B]) play an episode of this rollout, as indices."""
        return np.flatnonzero(slots & (self.episode < self.num_episodes))

    def _keep(self, kept: Any, numbers: np.ndarray, obs: Any, rows: np.ndarray) -> Any:
        """Write rows of observations into the rows of their episodes; return all rows [N, ...], zeros for the rest."""
        index, source = to_device(numbers, self.device), to_device(rows, self.device)
        seen: Any = map_obs(lambda x: to_single(to_device(x, self.device))[source], obs)
        if kept is None:
            kept = map_obs(lambda x: x.new_zeros(self.num_episodes, *x.shape[1:]), seen)
        map_many(lambda pair: pair[0].index_copy_(0, index, pair[1]), [kept, seen])
        return kept

    def _finish(self, step: Step) -> None:
        """Close the episodes that ended with the step just written."""
        cut = self._counting(step.truncated & ~step.terminated)
        if len(cut):
            self.final = self._keep(self.final, self.episode[cut], *step.final_observations(cut))
        replied = self._counting(step.dones & self.has_replies[self.episode])
        if len(replied):  # tokens in place of those of the first observation
            obs: Any
            obs, rows = step.final_observations(replied)
            self._keep(self.first["tokens"], self.episode[replied], obs["tokens"], rows)
        slots = self._counting(step.dones)
        numbers = self.episode[slots]
        self.lengths[numbers] = self.column[slots]
        self.terminated[numbers], self.truncated[numbers] = step.terminated[slots], step.truncated[slots]
        self.outcomes.add(numbers, slots, step.end_infos)
        self._assign(slots, self.num_episodes)
        self.finished += len(slots)
        if len(slots):
            self.without_end = 0

    def rollout(self, goes_on: Callable[[], bool]) -> Rollout:
        """Return the N episodes [N, T].

        Raises:
            CancelledError: if `goes_on` returns False while a verdict is late.
        """
        late, rewards = self.outcomes.wait(goes_on)
        lengths = self.lengths
        mask = to_device(np.arange(lengths.max()) < lengths[:, None], self.device)
        of_steps: dict[str, Any] = {
            name: map_obs(lambda x: to_device(x, self.device), found)
            for name, found in self.steps.put_together(lengths).items()
        }
        seen = self.first if self.first_only else of_steps["observations"]
        positions = None
        if self.has_replies[:-1].any():
            appended = of_steps["appended"]
            steps = torch.arange(mask.shape[1], device=self.device)
            positions = seen["length"][:, None] + steps + appended.cumsum(1) - appended
        actions, log_probs, paid = (of_steps[name] for name in ("actions", "log_probs", "rewards"))
        paid, outcomes = paid.float(), self.outcomes
        if late:
            rows = to_device(late, self.device)
            paid[rows, mask.sum(1)[rows] - 1] = to_device(rewards, self.device).to(paid.dtype)
        paid = outcomes.without_bad_rewards(paid)
        return Rollout(
            observations=seen,
            actions=actions,
            log_probs=log_probs,
            rewards=paid,
            mask=mask,
            terminated=to_device(self.terminated, self.device),
            truncated=to_device(self.truncated, self.device),
            groups=to_device(self.groups, self.device),
            status=to_device(outcomes.status, self.device),
            success=to_device(outcomes.success.astype(np.float32), self.device),
            extras={name: to_device(x.astype(np.float32), self.device) for name, x in outcomes.extras.items()},
            final_observations=self.final,
            positions=positions,
        )
