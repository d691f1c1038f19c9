"""The figures of a run, read from its folder, for the rules and the charts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..run.folder import CONFIG, RunFolder

Row = Mapping[str, Any]  # of samples.jsonl
UPDATE = "time/iterations"
SOLVED = 0.95  # of the problems: from here on, most groups of rollouts are all right, and rewards hardly differ
EDGE_SHARE, EDGE_MOST = 0.1, 20  # of a series are its beginning and its end: enough to average noise, short in time
DIFFERENT = 1.0  # nats per answer: a policy that knows the one answer to each problem has hardly any
ROUNDING = 1e-9  # of the largest value: the error of a trend that is only rounding


@dataclass(frozen=True)
class Series:
    """One metric over a run.

    Attributes:
        updates: after which each value was logged [n].
        values: finite ones only [n].
    """

    updates: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    @property
    def first(self) -> float:
        """The first value; NaN if there is none."""
        return _mean(self.values[:1])

    @property
    def last(self) -> float:
        """The last value; NaN if there is none."""
        return _mean(self.values[-1:])

    @property
    def start(self) -> float:
        """The mean of the first values: a tenth of all, at most 20; NaN if there is none."""
        return _mean(self.values[: self.edge])

    @property
    def end(self) -> float:
        """The mean of the last values: a tenth of all, at most 20; NaN if there is none."""
        return _mean(self.values[-self.edge :])

    @property
    def edge(self) -> int:
        """How many values are the beginning, and how many the end."""
        return min(max(round(EDGE_SHARE * len(self)), 1), EDGE_MOST)

    def smooth(self, points: int = 20) -> Series:
        """Return at most so many points: means of neighbours, at the last of their updates."""
        size = -(-len(self) // points) or 1
        ends = np.arange(len(self), 0, -size)[::-1]
        return Series(self.updates[ends - 1], np.array([_mean(self.values[max(end - size, 0) : end]) for end in ends]))

    def trend(self) -> tuple[float, float]:
        """Return how far the straight line through all values rises, and the standard error of that.

        The error comes from the distances to the line, so that it does not matter how noisy the values are.
        """
        if len(self) < 3 or self.updates[0] == self.updates[-1]:
            return 0.0, math.inf
        (slope, _), covariance = np.polyfit(self.updates, self.values, 1, cov=True)
        length, error = self.updates[-1] - self.updates[0], math.sqrt(covariance[0, 0])
        return float(slope * length), float(max(error * length, ROUNDING * abs(self.values).max()))

    @property
    def noise(self) -> float:
        """The standard deviation of a value around a curve that changes slowly, from the differences of neighbours."""
        return max(math.sqrt(np.square(np.diff(self.values)).mean() / 2), ROUNDING * abs(self.values).max())

    def since(self, update: float) -> Series:
        """Return the values that were logged from an update on."""
        kept = self.updates >= update
        return Series(self.updates[kept], self.values[kept])


@dataclass(frozen=True)
class History:
    """The figures and facts of a run.

    Attributes:
        columns: of progress.csv, NaN where a cell is empty [rows], by name.
        config: the options.
        result: the result that the run printed at its end; empty for one that is still running or was killed.
        folder: of the run; None for one of which there are figures alone.
    """

    columns: Mapping[str, np.ndarray]
    config: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    def curve(self, x: str, y: str) -> np.ndarray:
        """Return two columns [2, n], without rows in which one of them is empty."""
        nothing = np.full(1, np.nan)
        pair = np.stack(np.broadcast_arrays(self.columns.get(x, nothing), self.columns.get(y, nothing)))
        return pair[:, np.isfinite(pair).all(0)]

    def __getitem__(self, name: str) -> Series:
        return Series(*self.curve(UPDATE, name))

    @cached_property
    def updates(self) -> int:
        """The last update that is logged."""
        return int(np.nanmax(self.columns.get(UPDATE, np.zeros(1)), initial=0))

    @cached_property
    def done(self) -> float:
        """The share of the run that is over; 1 if it has ended, or its goal is unknown."""
        counted = {"timesteps": "time/total_timesteps", "episodes": "time/episodes"}
        goals = [self[column].last / self.config[name] for name, column in counted.items() if self.config.get(name)]
        return 1.0 if self.result or not goals else max(goals)

    @property
    def is_text(self) -> bool:
        """Whether episodes are texts, without importing the module that the environment's id may name.

        Where they are not, long episodes and time limits may be good.
        """
        return re.search(r"(^|:)TextGen(-|$)", str(self.config.get("env_id", ""))) is not None

    @cached_property
    def reward(self) -> Series:
        """The mean reward of the episodes trained on."""
        return self["rollout/ep_rew_mean"]

    @cached_property
    def success(self) -> Series:
        """The share of solved problems among the episodes trained on; empty if the environment does not say."""
        return self["rollout/success_rate"]

    @cached_property
    def samples(self) -> Sequence[Row]:
        """The rows of samples.jsonl, which is read when it is asked for; see `samples.episode_rows`."""
        return [] if self.folder is None else RunFolder(self.folder).samples

    @property
    def no_signal(self) -> bool:
        """Whether no group has ever had two different rewards; of groups of one, no two episodes."""
        reward, spread = self.reward.values, self["rollout/reward_std"].values
        equal, sizes = (self[f"rollout/{name}"].values for name in ("frac_reward_zero_std", "group_size_min"))
        in_groups = len(equal) > 0 and len(sizes) > 0 and sizes.min() > 1 and equal.min() > 1 - ROUNDING
        return in_groups or (len(spread) > 0 and not spread.any() and np.allclose(reward, reward[-1:]))

    @property
    def has_teacher(self) -> bool:
        """Whether there is something to learn without any reward."""
        return len(self["train/kl_teacher"]) > 0

    @property
    def answers_differ(self) -> bool:
        """Whether the policy of the first update gives different answers to one prompt."""
        return -self["train/entropy_loss"].first * self["rollout/ep_len_mean"].first >= DIFFERENT

    @property
    def solved(self) -> bool:
        """Whether nearly all problems are solved, so that there is hardly anything left to learn."""
        return self.success.end >= SOLVED

    @cached_property
    def improved(self) -> bool:
        """Whether the reward rose by more than chance explains: three standard errors."""
        rise, error = self.reward.trend()
        return rise > 3 * error


def read_run(folder: Path) -> History:
    """Return the history of the run in a folder, which may still be running.

    Raises:
        ValueError: if it is not the folder of a run of `rlenv train`, or its config.json is damaged.
    """
    run, config = RunFolder(folder), RunFolder(folder).config
    if not isinstance(config.get("env_id"), str) or not isinstance(config.get("agent"), str):
        raise ValueError(f"{str(folder)!r} is not a run folder of rlenv train: its {CONFIG} names no env_id and agent")
    return History(run.log, config, run.result, folder)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan
