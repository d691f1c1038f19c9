"""The figures of a run, read from its folder: what the rules look at."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.files import read_table

from ..run import CONFIG, CSV, Run, read_rows, runs_in

GIVE = "give a folder that rlenv train wrote"
UPDATE = "time/iterations"
SOLVED = 0.95  # of the problems: from here on, most groups of rollouts are all right, and rewards hardly differ
EDGE_SHARE, EDGE_MOST = 0.1, 20  # of a series are its beginning and its end: enough to average noise, short in time


@dataclass(frozen=True)
class Series:
    """One metric over a run.

    Attributes:
        updates: after which each value was logged.
        values: finite ones only.
    """

    updates: Sequence[int] = ()
    values: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.values)

    @property
    def first(self) -> float:
        """The first value; NaN if there is none."""
        return self.values[0] if self.values else math.nan

    @property
    def last(self) -> float:
        """The last value; NaN if there is none."""
        return self.values[-1] if self.values else math.nan

    @property
    def start(self) -> float:
        """The mean of the first values: a tenth of all, at most 20; NaN if there is none."""
        return _mean(self.values[: self.edge])

    @property
    def end(self) -> float:
        """The mean of the last values: a tenth of all, at most 20; NaN if there is none."""
        return _mean(self.values[-self.edge :])

    @property
    def mean(self) -> float:
        """The mean of all values; NaN if there is none."""
        return _mean(self.values)

    @property
    def edge(self) -> int:
        """How many values are the beginning, and how many the end."""
        return min(max(round(EDGE_SHARE * len(self)), 1), EDGE_MOST)

    def smooth(self, points: int = 20) -> Series:
        """Return at most so many points: means of neighbours, at the last of their updates."""
        size = -(-len(self) // points) or 1
        ends = range(len(self), 0, -size)
        parts = [self.values[max(end - size, 0) : end] for end in ends]
        return Series(tuple(self.updates[end - 1] for end in ends)[::-1], tuple(map(_mean, parts))[::-1])

    def trend(self) -> tuple[float, float]:
        """Return how far the straight line through all values rises, and the standard error of that.

        The error comes from the distances to the line, so that it does not matter how noisy the values are.
        """
        if len(self) < 3:
            return 0.0, math.inf
        middle, centre = _mean(tuple(map(float, self.updates))), self.mean
        points = [(update - middle, value - centre) for update, value in zip(self.updates, self.values, strict=True)]
        spread = sum(x * x for x, _ in points)
        if not spread:
            return 0.0, math.inf
        slope = sum(x * y for x, y in points) / spread
        rest = sum((y - slope * x) ** 2 for x, y in points) / (len(self) - 2)
        length = self.updates[-1] - self.updates[0]
        return slope * length, math.sqrt(rest / spread) * length

    def since(self, update: int) -> Series:
        """Return the values that were logged from an update on."""
        kept = [(at, value) for at, value in zip(self.updates, self.values, strict=True) if at >= update]
        return Series(tuple(at for at, _ in kept), tuple(value for _, value in kept))

    def around(self, update: int) -> float:
        """Return the mean of as many values as the beginning has, those logged nearest to an update."""
        near = sorted(zip(self.updates, self.values, strict=True), key=lambda point: abs(point[0] - update))
        return _mean(tuple(value for _, value in near[: self.edge]))


@dataclass(frozen=True)
class History:
    """Everything that the rules know about a run.

    Attributes:
        metrics: by name.
        config: the options; empty if unknown.
        result: what the run printed at its end; empty for one that is still running or was killed.
    """

    metrics: dict[str, Series]
    config: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Series:
        return self.metrics.get(name, Series())

    @property
    def updates(self) -> int:
        """The last update of which anything is known."""
        return max((series.updates[-1] for series in self.metrics.values()), default=0)

    @property
    def done(self) -> float:
        """The share of the run that is over; 1 if it has ended, or its goal is unknown."""
        counted = {"timesteps": "time/total_timesteps", "episodes": "time/episodes"}
        goals = [self[column].last / self.config[name] for name, column in counted.items() if self.config.get(name)]
        return 1.0 if self.result or not goals else max(goals)

    @property
    def is_text(self) -> bool:
        """Whether episodes are texts; where they are not, long episodes and time limits may be good."""
        return names_text(str(self.config.get("env_id", "")))

    @property
    def reward(self) -> Series:
        """The mean reward of the episodes trained on."""
        return self["rollout/ep_rew_mean"]

    @property
    def success(self) -> Series:
        """The share of solved problems among the episodes trained on; empty if the environment does not say."""
        return self["rollout/success_rate"]

    @property
    def solved(self) -> bool:
        """Whether nearly all problems are solved, so that there is hardly anything left to learn."""
        return len(self.success) > 0 and self.success.end >= SOLVED

    @property
    def improved(self) -> bool:
        """Whether the reward rose by more than chance explains: three standard errors."""
        rise, error = self.reward.trend()
        return rise > 3 * error


def names_text(env_id: str) -> bool:
    """Tell whether an id is that of the text environment, without importing the module that it may name."""
    return re.search(r"(^|:)TextGen(-|$)", env_id) is not None


def read_run(folder: Path) -> History:
    """Return the history of the run in a folder, which may still be running.

    Raises:
        ValueError: if it is not a run folder, or its config.json is damaged.
    """
    if not (folder / CONFIG).is_file():
        missing = f"{str(folder)!r} is not a run folder (no {CONFIG}); {GIVE}"
        raise ValueError(runs_in(folder) or missing)
    config = read_table(folder / CONFIG)
    if "env_id" not in config:
        raise ValueError(f"{str(folder)!r} is not a run folder: its {CONFIG} names no env_id; {GIVE}")
    return History(read_metrics(folder / CSV), config, Run(folder).result)


def read_metrics(table: Path) -> dict[str, Series]:
    """Return the series in a progress.csv, none without that file; cells empty or not finite are left out."""
    if not table.is_file():
        return {}
    found: dict[str, tuple[array[int], array[float]]] = {}  # a long table as objects takes a hundred MB
    for row in read_rows(table):
        update = row.get(UPDATE, math.nan)
        for name, value in row.items():
            if name and math.isfinite(update) and math.isfinite(value):
                updates, values = found.setdefault(name, (array("q"), array("d")))
                updates.append(int(update))
                values.append(value)
    return {name: Series(*columns) for name, columns in found.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
