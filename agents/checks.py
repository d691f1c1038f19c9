"""Checks of hyper-parameters: one clear line for a value out of range."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

from rlenv._checks import SHOWN, check_count

Scheduled = float | Callable[[float], float]  # a number, or a function of the remaining progress (1 to 0)
MOST_SLOTS = 1 << 20  # of an environment
LARGEST_SEED = 2**63 - 1


def check_number(
    name: str, value: Any, low: float = -math.inf, high: float = math.inf, above: bool = False, below: bool = False
) -> float:
    """Return a finite number from `low` to `high`.

    Args:
        name: of the parameter.
        value: to be checked.
        low: the smallest allowed number, not allowed itself if `above`.
        high: the largest allowed number.
        above: whether the number must be larger than `low`.
        below: whether the number must be smaller than `high`.

    Raises:
        ValueError: naming the parameter, the value and the allowed ones.
    """
    number = not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    if not number or not low <= value <= high or (above and value == low) or (below and value == high):
        least = "" if low == -math.inf else f" above {low:g}" if above else f" of at least {low:g}"
        most = "" if high == math.inf else f" and below {high:g}" if below else f" and at most {high:g}"
        raise ValueError(f"{name} must be a finite number{least}{most}, got {value!r:.{SHOWN}}")
    return float(value)


def check_schedule(name: str, value: Any, **bounds: Any) -> Any:
    """Return a number, or a function of the remaining progress with a number as first value; see `check_number`."""
    if callable(value):
        check_number(name, value(1.0), **bounds)
        return value
    return check_number(name, value, **bounds)


def check_optional_count(name: str, value: Any) -> int | None:
    """Return None or a whole number of at least 1; see `check_count`."""
    return None if value is None else check_count(name, value)


def check_goal(total_timesteps: Any, total_episodes: Any, progress_bar: bool) -> tuple[str, int]:
    """Return which counter of an agent ends a training, and after how many more.

    Raises:
        ValueError: unless one of the two is given, a positive whole number; for a progress bar of episodes.
    """
    if (total_timesteps is None) == (total_episodes is None):
        raise ValueError("learn() takes either total_timesteps or total_episodes")
    if total_episodes is None:
        return "num_timesteps", check_count("total_timesteps", total_timesteps)
    if progress_bar:
        raise ValueError("the progress bar counts steps: pass total_timesteps")
    return "num_episodes", check_count("total_episodes", total_episodes)
