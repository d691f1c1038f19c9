"""The figures of a run, read from its folder: what the rules look at."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.files import read_table

from ..run_folder import CONFIG, RESULT
from ..run_log import CSV

UPDATE = "time/iterations"
EDGE_SHARE, EDGE_MOST = 0.1, 20  # of a series are its beginning and its end: enough to average noise, short in time


@dataclass(frozen=True)
class Series:
    """One metric over a run.

    Attributes:
        updates: after which each value was logged.
        values: finite ones only.
    """

    updates: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

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
        return _mean(self.values[: self._edge])

    @property
    def end(self) -> float:
        """The mean of the last values: a tenth of all, at most 20; NaN if there is none."""
        return _mean(self.values[-self._edge :])

    @property
    def mean(self) -> float:
        """The mean of all values; NaN if there is none."""
        return _mean(self.values)

    @property
    def _edge(self) -> int:
        return min(max(round(EDGE_SHARE * len(self)), 1), EDGE_MOST)


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


def read_run(folder: Path) -> History:
    """Return the history of the run in a folder, which may still be running.

    Raises:
        ValueError: if it is not a run folder, or its config.json is damaged.
    """
    if not (folder / CONFIG).is_file():
        raise ValueError(f"{str(folder)!r} is not a run folder (no {CONFIG}); give a folder that rlenv train wrote")
    table = folder / CSV
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True) if table.is_file() else []
    whole = [line for line in lines if line.endswith("\n")]  # of a run that goes on, the last may be half written
    result = read_table(folder / RESULT) if (folder / RESULT).is_file() else {}
    return History(series_of(list(csv.DictReader(whole))), read_table(folder / CONFIG), result)


def series_of(rows: list[dict[str, str]]) -> dict[str, Series]:
    """Return the series in the rows of a progress.csv; cells that are empty or not finite are left out."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        update = _number(row.get(UPDATE))
        for name, cell in row.items():
            value = _number(cell)
            if name and math.isfinite(update) and math.isfinite(value):
                found.setdefault(name, []).append((int(update), value))
    return {name: Series(*map(tuple, zip(*points, strict=True))) for name, points in found.items()}


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return math.nan


def _mean(values: tuple[float, ...]) -> float:
    return sum(values) / len(values) if values else math.nan
