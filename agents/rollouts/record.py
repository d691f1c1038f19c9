"""Which slot plays which episode of a rollout, and what happened in it.

Episodes are numbered as they start, and numbers from N on are ignored: taking whichever N finish first would favour
short ones. Every step of a slot belongs to an action of its episode: its own one, or the last one before it if the slot
waited for a reply. So what comes late, rewards and tokens, is put where it would have been at once.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
import torch

from rlenv._status import ERROR, OK, number_of

from ..devices import to_device
from ..rollout import COUNTS, PARTS, Obs, Rollout, map_many, map_obs
from .env_protocol import Step

END_NUMBERS = ("level", "prompt_arm", *COUNTS)  # infos of an end that are numbers
Seen = list[tuple[np.ndarray, Obs]]  # numbers of episodes, and an observation of each


class Record:
    """The bookkeeping of one rollout: which slot plays which episode, and what happened.

    What a step brings is kept as it comes, arrays or tensors, and goes to the device when the rollout is put together.

    Args:
        num_episodes: N.
        num_slots: B.
        device: of the rollout.
        groups_span_slots: whether group numbers are unique over all slots.
        first_only: whether only the first observation of an episode is kept.

    Attributes:
        episode: the number that a slot plays, -1 for one that does not count [B].
        count: of the steps so far, S.
        ended_at: the count at the last end of an episode.
        failure: why the verifier failed the last time; empty if it never did.
    """

    def __init__(
        self, num_episodes: int, num_slots: int, device: torch.device, groups_span_slots: bool, first_only: bool = False
    ) -> None:
        self.num_episodes, self.device = num_episodes, device
        self.groups_span_slots, self.first_only = groups_span_slots, first_only
        self.started = self.finished = self.count = self.ended_at = 0
        self.episode = np.full(num_slots, -1)
        self.offset = np.zeros(num_slots, dtype=np.int64)  # steps that are not actions of the episode so far [B]
        self.answered = np.zeros(num_slots, dtype=bool)  # whose episode has replies [B]
        self.steps: dict[str, list[Any]] = {"observations": [], "actions": [], "log_probs": [], "rewards": []}
        self.places: list[tuple[np.ndarray, np.ndarray]] = []  # `episode` and `offset` of each step
        self.idle: dict[int, np.ndarray] = {}  # which slots waited, by step, bool [B]
        self.replies: list[tuple[np.ndarray, ...]] = []  # episodes, actions, tokens appended after these
        self.late: dict[int, Future[dict[str, Any]]] = {}  # verdicts that come late, by episode
        self.first: Seen = []
        self.last: Seen = []
        self.whole: Seen = []  # the last observations of episodes with replies
        self.lengths, self.groups = np.zeros((2, num_episodes), dtype=np.int64)
        self.terminated, self.truncated = np.zeros((2, num_episodes), dtype=bool)
        self.status = np.full(num_episodes, OK)
        self.success = np.full(num_episodes, np.nan)
        self.extras: dict[str, np.ndarray] = {}
        self.failure = ""
        self.reasons = np.full(num_episodes, "", dtype=object)  # of the verdicts, also of those that are "ok"

    @property
    def unfinished(self) -> bool:
        """Whether some of the N episodes still run or have not started."""
        return self.finished < self.num_episodes

    def to_restart(self, share: float) -> np.ndarray:
        """Return which finished slots start an episode that counts, bool [B]: none until they are a share of all."""
        starts = np.zeros(len(self.episode), dtype=bool)
        if self.started >= self.num_episodes:
            return starts
        finished = np.flatnonzero(self.episode < 0)
        if len(finished) >= share * len(self.episode) or len(finished) == len(self.episode):
            starts[finished[: self.num_episodes - self.started]] = True
        return starts

    def start(self, starts: np.ndarray, infos: dict[str, Any]) -> None:
        """Number the episodes that start in these slots (bool [B])."""
        slots = np.flatnonzero(starts)
        numbers = self.started + np.arange(len(slots))
        self.started += len(slots)
        counts = numbers < self.num_episodes
        self.episode, self.offset = self.episode.copy(), self.offset.copy()  # `places` has the old ones
        self.episode[slots], self.offset[slots] = np.where(counts, numbers, -1), self.count
        self.answered[slots] = False
        if "group" in infos:
            group = np.asarray(infos["group"])[slots[counts]]
            # If every slot numbers its groups by itself, equal numbers in two slots are different groups.
            own = group if self.groups_span_slots else group * len(self.episode) + slots[counts]
            self.groups[numbers[counts]] = own

    def see(self, obs: Any, starts: np.ndarray) -> Any:
        """Keep the observations of all slots before a step; return them, copied if kept: environments reuse buffers.

        Args:
            obs: [B, ...].
            starts: where an episode begins with it, bool [B].
        """
        if not self.first_only:
            obs = map_obs(to_single, obs)
            self.steps["observations"].append(obs)
        elif np.count_nonzero(starts):
            slots = self._counting(starts)
            self.first.append((self.episode[slots], self._rows(obs, slots)))
        return obs

    def add(self, actions: Any, log_probs: Any, step: Step) -> None:
        """Store a step of every slot, and close the episodes that ended with it.

        Actions and log-probabilities are not copied.
        """
        if step.idle is not None:
            self.idle[self.count] = step.idle
            self.offset = self.offset + step.idle
        for name, values in (("actions", actions), ("log_probs", log_probs), ("rewards", to_single(step.rewards))):
            self.steps[name].append(values)
        self.places.append((self.episode, self.offset))
        if isinstance(step.appended, torch.Tensor):
            appended = step.appended.numpy()
            slots = self._counting(appended > 0)
            self.replies.append((self.episode[slots], self.count - self.offset[slots], appended[slots]))
            self.answered[slots] = True
        self.count += 1
        if np.count_nonzero(step.dones):
            for seen, ended in (
                (self.last, step.truncated & ~step.terminated),
                (self.whole, step.dones & self.answered),
            ):
                slots = self._counting(ended)
                if len(slots):
                    seen.append((self.episode[slots], self._rows(*step.final_observations(slots))))
            self._finish(step)

    def _counting(self, slots: np.ndarray) -> np.ndarray:
        """Return which of the slots (bool [B]) play an episode of this rollout, as indices."""
        return np.flatnonzero(slots & (self.episode >= 0))

    def _rows(self, obs: Any, rows: np.ndarray) -> Obs:
        index = to_device(rows, self.device)
        return map_obs(lambda x: to_single(to_device(x, self.device)[index]), obs)

    def _finish(self, step: Step) -> None:
        """Close the episodes that ended with the step just added."""
        slots = self._counting(step.dones)
        numbers = self.episode[slots]
        self.lengths[numbers] = self.count - self.offset[slots]
        self.terminated[numbers], self.truncated[numbers] = step.terminated[slots], step.truncated[slots]
        if "verdict_future" in step.end_infos:
            self.late |= zip(numbers.tolist(), step.end_infos["verdict_future"][slots], strict=True)
        else:
            self._add_outcomes(numbers, slots, step.end_infos)
        self.episode = self.episode.copy()
        self.episode[slots] = -1
        self.finished += len(slots)
        if len(slots):
            self.ended_at = self.count

    def _add_outcomes(self, numbers: np.ndarray, rows: np.ndarray, info: dict[str, Any]) -> None:
        """Keep the infos about these episodes, which are in these rows of its columns."""
        if not info:
            return
        has, failed = _values_of(info, "verifier_failed", rows)
        self.status[numbers[has]] = np.where(failed.astype(bool), ERROR, OK)
        has, success = _values_of(info, "is_success", rows)
        self.success[numbers[has]] = success.astype(float)
        own: dict[str, Any] = {key: value for key, value in info.items() if key.removeprefix("_") in END_NUMBERS}
        for prefix, columns in (("", own), (PARTS, info.get("verdict", {}))):
            for name in [name for name in columns if not name.startswith("_")]:
                has, values = _values_of(columns, name, rows)
                column = self.extras.setdefault(prefix + name, np.full(self.num_episodes, np.nan))
                column[numbers[has]] = values.astype(float)
        has, status = _values_of(info, "verdict_status", rows)
        self.status[numbers[has]] = [number_of(each) for each in status]
        told, reasons = _values_of(info, "verdict_reason", rows)
        self.reasons[numbers[told]] = reasons
        if (status != "ok").any():
            for each, reason in zip(status, self.reasons[numbers[has]], strict=True):
                if each != "ok":
                    self.failure = f"{each}: {reason or each}"

    def rollout(self) -> Rollout:
        """Put every stored step into its place [N, T]."""
        shape = self.num_episodes, int(self.lengths.max())
        exists = np.arange(shape[1]) < self.lengths[:, None]  # [N, T]
        episode, offset = (np.concatenate(each) for each in zip(*self.places, strict=True))  # [S · B]
        steps = np.arange(self.count).repeat(len(self.episode))
        cells = episode * shape[1] + steps - offset  # of [N · T], where what a step brought belongs [S · B]
        acted, waited = episode >= 0, None
        if self.idle:
            idle = np.zeros((self.count, len(self.episode)), dtype=bool)
            idle[list(self.idle)] = list(self.idle.values())
            later = idle.ravel() & (steps >= offset)  # than the first action of the episode
            acted, waited = acted & ~idle.ravel(), self._moves(acted & later, cells)
        source, target = self._moves(acted, cells)

        def place(steps: list[Any], waited: torch.Tensor | None = None) -> torch.Tensor:
            joined = torch.cat(steps) if isinstance(steps[0], torch.Tensor) else np.concatenate(steps)
            every = to_device(joined, self.device)  # [S · B, ...]
            out = torch.zeros(exists.size, *every.shape[1:], dtype=every.dtype, device=self.device)
            out[target] = every[source]
            if waited is not None:
                out.index_add_(0, waited[1], every[waited[0]])
            return out.unflatten(0, shape)

        seen = self._by_episode(self.first) if self.first_only else map_many(place, self.steps["observations"])
        positions = None
        if self.whole:
            seen, positions = self._with_replies(seen, shape)
        actions, log_probs = (place(self.steps[name]) for name in ("actions", "log_probs"))
        paid = place(self.steps["rewards"], waited)
        mask = to_device(exists, self.device)
        if self.late:
            self._add_late_verdicts(paid, mask.sum(1))
        paid = self._without_bad_rewards(paid)
        return Rollout(
            observations=seen,
            actions=actions,
            log_probs=log_probs,
            rewards=paid,
            mask=mask,
            terminated=to_device(self.terminated, self.device),
            truncated=to_device(self.truncated, self.device),
            groups=to_device(self.groups, self.device),
            status=to_device(self.status, self.device),
            success=to_device(self.success.astype(np.float32), self.device),
            extras={name: to_device(figures.astype(np.float32), self.device) for name, figures in self.extras.items()},
            final_observations=self._by_episode(self.last) if self.last else None,
            positions=positions,
        )

    def _moves(self, steps: np.ndarray, cells: np.ndarray) -> torch.Tensor:
        """Return which of [S · B] steps these are (bool), and the cells that they belong to [2, number of steps]."""
        source = np.flatnonzero(steps)
        return to_device(np.stack([source, cells[source]]), self.device)

    def _with_replies(self, first: Any, shape: tuple[int, int]) -> tuple[Obs, torch.Tensor]:
        """Return first observations with final tokens where replies came, and the columns of actions [N, T]."""
        grown = np.zeros(shape, dtype=np.int64)
        for numbers, actions, appended in self.replies:
            np.add.at(grown, (numbers, actions), appended)
        before = to_device(np.arange(shape[1]) + grown.cumsum(1) - grown, self.device)
        rows = to_device(np.concatenate([numbers for numbers, _ in self.whole]), self.device)
        last: Any = map_many(torch.cat, [obs for _, obs in self.whole])
        tokens = first["tokens"].index_copy(0, rows, last["tokens"])
        return {**first, "tokens": tokens}, first["length"][:, None] + before

    def _add_late_verdicts(self, rewards: torch.Tensor, lengths: torch.Tensor) -> None:
        """Wait for the verdicts that come late, and put their rewards at the last steps of [N, T]."""
        paid = []
        for number, future in self.late.items():
            outcome = future.result()
            parts = {name: [part] for name, part in outcome["verdict"].items()}
            columns = {name: [value] for name, value in outcome.items()} | {"verdict": parts}
            self._add_outcomes(np.array([number]), np.array([0]), columns)
            paid.append(outcome["reward"])
        rows = to_device(list(self.late), self.device)
        rewards[rows, lengths[rows] - 1] = to_device(paid, self.device).to(rewards.dtype)

    def _without_bad_rewards(self, rewards: torch.Tensor) -> torch.Tensor:
        """Count episodes whose rewards [N, T] are not finite as errors; return the rewards with 0 in their rows."""
        returns = rewards.sum(1)
        finite = returns.isfinite()
        if not bool(finite.all()):
            bad = ~finite.cpu().numpy()
            self.status[bad & (self.status == OK)] = ERROR
            self.failure = f"error: the environment paid {float(returns[~finite][-1])}"
        return rewards.where(finite[:, None], 0)

    def _by_episode(self, seen: Seen) -> Obs:
        """Put rows in the order of their episodes [N, ...], zeros where an episode has none."""
        numbers = to_device(np.concatenate([numbers for numbers, _ in seen]), self.device)

        def order(rows: torch.Tensor) -> torch.Tensor:
            return rows.new_zeros(self.num_episodes, *rows.shape[1:]).index_copy(0, numbers, rows)

        return map_obs(order, map_many(torch.cat, [obs for _, obs in seen]))


def to_single(values: Any) -> Any:
    """Return a copy of a tensor or an array, in which double precision becomes single."""
    if isinstance(values, torch.Tensor):
        return values.float() if values.dtype is torch.float64 else values.clone()
    array = np.asarray(values)
    if array.dtype != np.float64:
        return array.copy("K")
    with np.errstate(over="ignore"):  # as in torch, what is too large becomes infinite
        return array.astype(np.float32)


def _values_of(columns: dict[str, Any], name: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return of which rows [n] the infos have a value of this name, bool [n], and those values.

    Elsewhere a column holds anything: Gymnasium fills it with 0, False or None, and says so in the column `_name`.
    """
    if name not in columns:
        return np.zeros(len(rows), dtype=bool), np.empty(0, dtype=object)
    values = np.asarray(columns[name])
    has = np.asarray(columns.get(f"_{name}", np.ones(len(values))), dtype=bool)[rows]
    return has, values[rows[has]]
