"""How the metrics of several updates become one entry of the log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from stable_baselines3.common.logger import Logger

from rlenv._status import FAILURES

NEWEST = ("train/skipped_updates", "train/learning_rate")  # the first is a count of the whole run
EXTREMES = {"train/logp_gap_max": max, "rollout/group_size_min": min}
SUCCESS_KNOWN = "rollout/success_known_frac"
SHARES = {f"rollout/{kind}_frac": (kind,) for kind in FAILURES} | {"rollout/failed_frac": FAILURES}


class Pending:
    """Figures that were recorded and not written yet, before there is a logger and with one.

    Attributes:
        logger: None until `use` was called.
    """

    def __init__(self) -> None:
        self.logger: Logger | None = None
        self._restored: Mapping[str, list[float]] = {}

    def use(self, logger: Logger) -> None:
        """Record the restored figures with this logger; `figures` are its own from now on."""
        self.logger, restored, self._restored = logger, self._restored, {}
        self.figures = restored

    def close(self) -> None:
        """Close the logger, if any; the next one has the figures that were not written."""
        if self.logger is not None:
            self.logger.close()
            self.logger, self._restored = None, self.figures

    def __getstate__(self) -> dict[str, Any]:
        """Leave the logger out, which may hold open files: a copy of the agent makes its own, with these figures."""
        return {"logger": None, "_restored": self.figures}

    @property
    def figures(self) -> Mapping[str, list[float]]:
        """The numbers by name, each with how many updates it is the mean of."""
        if self.logger is None:
            return self._restored
        counts, recorded = self.logger.name_to_count, self.logger.name_to_value.items()
        return {name: [float(value), float(counts.get(name, 0))] for name, value in recorded if isinstance(value, Real)}

    @figures.setter
    def figures(self, figures: Mapping[str, list[float]]) -> None:
        if self.logger is None:
            self._restored = {name: [float(value), float(count)] for name, (value, count) in figures.items()}
            return
        for name, (value, count) in figures.items():
            self.logger.record(name, float(value))
            self.logger.name_to_count[name] = int(count)


def record_metrics(logger: Logger, metrics: Mapping[str, float]) -> None:
    """Record the metrics of an update: an entry of the log has their means over the updates since the last entry.

    A maximum stays the largest, a minimum the smallest, a count the newest. An update whose metric is NaN, because it
    was skipped, does not count.
    """
    pending, counts = logger.name_to_value, logger.name_to_count
    for name, value in metrics.items():
        if name in NEWEST or name not in pending or math.isnan(pending[name]):
            logger.record(name, value)
            counts[name] = 1
        elif math.isnan(value):
            continue
        elif name in EXTREMES:
            logger.record(name, EXTREMES[name](value, pending[name]))
        else:
            logger.record_mean(name, value)


def drop_empty(logger: Logger, totals: Mapping[str, int], skipped: int) -> None:
    """Leave uninformative figures out of an entry.

    These are the figures of failures before the first one in the run, and the share of episodes whose success is
    known if that is all of them, or none.

    Args:
        logger: has the entry.
        totals: episodes of the run without a verdict, by kind.
        skipped: updates of the run that were skipped.
    """
    numbers = logger.name_to_value
    failed = {name: any(totals[kind] for kind in kinds) for name, kinds in SHARES.items()}
    kept = failed | {"train/skipped_updates": skipped > 0, SUCCESS_KNOWN: False}
    for name, happened in kept.items():
        value = numbers.get(name, 0.0)
        if not happened and (not value or (name == SUCCESS_KNOWN and value == 1)):
            for column in (numbers, logger.name_to_excluded, logger.name_to_count):
                column.pop(name, None)
