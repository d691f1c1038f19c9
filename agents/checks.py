"""Checks of hyper-parameters: one clear line for a value out of range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlenv._checks import check_count

Scheduled = float | Callable[[float], float]  # a number, or a function of the remaining progress (1 to 0)
MOST_SLOTS = 1 << 20  # of an environment
LARGEST_SEED = 2**63 - 1


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
