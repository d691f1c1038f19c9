"""How many episodes per update and how many slots, unless the user says; fewer for a small budget of steps."""

from __future__ import annotations

from typing import Any

from ..policies import ControlPolicy, Policy, kind_of
from ..settings import Configured, default_of

SHARE = 1 / 2  # of the budget: what the longest episodes of a rollout may take


def sizes(
    agent: type[Configured], policy: Any, for_text: bool, asked: tuple[int | None, int | None]
) -> tuple[int, int]:
    """Return the episodes of an update and the slots of an environment.

    Args:
        agent: the class.
        policy: as for `make_policy`; it need not be made yet.
        for_text: whether the environment is known to be one of text.
        asked: what the user asked for; None for the default of the policy, else of its kind.
    """
    kind = kind_of(policy, for_text)

    def usual(name: str) -> Any:
        own = policy.defaults.get(name) if isinstance(policy, Policy) else None
        return default_of(name, agent, kind, ControlPolicy.kind) if own is None else own

    episodes, slots = asked
    episodes = usual("episodes_per_update") if episodes is None else episodes
    return episodes, min(usual("num_envs"), episodes) if slots is None else slots


def fitting_episodes(total_timesteps: int, longest: int, unit: int, least: int) -> int:
    """Return how many episodes per update a budget of steps has room for.

    Args:
        total_timesteps: the budget.
        longest: steps of the longest episode.
        unit: episodes that stay together: a group in each process.
        least: the smallest number that is useful.
    """
    return max(int(SHARE * total_timesteps) // longest // unit, -(-least // unit)) * unit
