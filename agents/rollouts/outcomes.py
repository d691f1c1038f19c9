"""Outcomes of episodes, read from the infos at their ends: verdicts, at once or late, and numbers for the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rlenv._loop import results
from rlenv._status import ERROR, OK, number_of

from ..rollout import COUNTS, PARTS

if TYPE_CHECKING:
    from concurrent.futures import Future

END_NUMBERS = ("level", "prompt_arm", *COUNTS)  # infos of an end that are numbers


class Outcomes:
    """The outcomes of N episodes, on the host.

    Args:
        num_episodes: N.

    Attributes:
        status: of the verdicts, as in `Rollout` [N].
        success: as in `Rollout` [N].
        extras: numbers for the log, as in `Rollout`, [N] each.
        reasons: of the verdicts, also of "ok" ones [N].
        failure: why the verifier failed the last time; empty if it never did.
    """

    def __init__(self, num_episodes: int) -> None:
        self.status = np.full(num_episodes, OK)
        self.success = np.full(num_episodes, np.nan)
        self.extras: dict[str, np.ndarray] = {}
        self.reasons = np.full(num_episodes, "", dtype=object)
        self.failure = ""
        self._late: dict[int, Future[dict[str, Any]]] = {}  # by episode

    def add(self, numbers: np.ndarray, rows: np.ndarray, info: dict[str, Any]) -> None:
        """Keep the infos about these episodes, which are in these rows of its columns, or futures of them."""
        if not info:
            return
        if "verdict_future" in info:
            self._late |= zip(numbers.tolist(), info["verdict_future"][rows], strict=True)
            return
        has, failed = _values_of(info, "verifier_failed", rows)
        self.status[numbers[has]] = np.where(failed.astype(bool), ERROR, OK)
        has, success = _values_of(info, "is_success", rows)
        succeeded = _as_numbers(success)
        if succeeded is None:
            raise ValueError(f"info['is_success'] of an episode's end must be True or False, got {success[0]!r:.60}")
        self.success[numbers[has]] = succeeded
        own: dict[str, Any] = {key: value for key, value in info.items() if key.removeprefix("_") in END_NUMBERS}
        parts = info.get("verdict")
        for prefix, columns in (("", own), (PARTS, parts if isinstance(parts, dict) else {})):
            for name in [name for name in columns if not name.startswith("_")]:
                has, values = _values_of(columns, name, rows)
                if (read := _as_numbers(values)) is not None:
                    column = self.extras.setdefault(prefix + name, np.full(len(self.status), np.nan))
                    column[numbers[has]] = read
        has, status = _values_of(info, "verdict_status", rows)
        self.status[numbers[has]] = [number_of(each) for each in status]
        told, reasons = _values_of(info, "verdict_reason", rows)
        self.reasons[numbers[told]] = reasons
        if (status != "ok").any():
            for each, reason in zip(status, self.reasons[numbers[has]], strict=True):
                if each != "ok":
                    self.failure = f"{each}: {reason or each}"

    def wait(self, goes_on: Callable[[], bool]) -> tuple[list[int], list[float]]:
        """Wait for the verdicts that come late; return the numbers of their episodes, and the rewards of these.

        Raises:
            CancelledError: if `goes_on` returns False meanwhile.
        """
        rewards = []
        for number, outcome in zip(self._late, results([*self._late.values()], goes_on), strict=True):
            parts = {name: [part] for name, part in outcome["verdict"].items()}
            columns = {name: [value] for name, value in outcome.items()} | {"verdict": parts}
            self.add(np.array([number]), np.array([0]), columns)
            rewards.append(outcome["reward"])
        return list(self._late), rewards

    def without_bad_rewards(self, rewards: torch.Tensor) -> torch.Tensor:
        """Count episodes with rewards [N, T] that are not finite as errors; return the rewards with 0 in their rows."""
        returns = rewards.sum(1)
        finite = returns.isfinite()
        if not bool(finite.all()):
            bad = ~finite.cpu().numpy()
            self.status[bad & (self.status == OK)] = ERROR
            self.failure = f"error: the environment paid {float(returns[~finite][-1])}"
        return rewards.where(finite[:, None], 0)


def _as_numbers(values: np.ndarray) -> np.ndarray | None:
    """Return values [n] as numbers; None if they are none: somebody's environment means something else by the name."""
    try:
        numbers = values.astype(float)
    except (TypeError, ValueError):
        return None
    return numbers if numbers.ndim == 1 else None


def _values_of(columns: dict[str, Any], name: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which of the rows [n] have a value of this name in the infos, bool [n], and the values.

    Elsewhere a column holds anything: Gymnasium fills it with 0, False or None, and says so in the column `_name`.
    """
    if name not in columns:
        return np.zeros(len(rows), dtype=bool), np.empty(0, dtype=object)
    values = np.asarray(columns[name])
    has = np.asarray(columns.get(f"_{name}", np.ones(len(values))), dtype=bool)[rows]
    return has, values[rows[has]]
