"""The default number of episodes per update for a small budget of steps."""

from __future__ import annotations

from typing import Any

from ..distributed import parallel
from ..rollouts.envs.make_envs import longest_episode

SHARE = 1 / 2  # of the budget: what the longest episodes of a rollout may take


def fit(agent: Any, total_timesteps: int) -> None:
    """Shrink `episodes_per_update`, and the slots of an environment made from an id, to what a budget has room for.

    Only numbers that the user left open change, and only before the first rollout. Groups stay whole, slots that cannot
    wait each get an episode, and a rollout has two episodes to compare unless there is a critic.

    Args:
        agent: about to be trained.
        total_timesteps: its budget.
    """
    limit = longest_episode(agent.env)
    if "episodes_per_update" not in agent.left_open or agent.num_episodes or limit is None:
        return
    unit = (agent.group_size or 1) * parallel.size()
    remakes = "num_envs" in agent.left_open and agent.group_size is None
    slots = 1 if agent.collector.slots_wait or remakes else agent.num_envs
    least = max(slots, 1 if agent.uses_critic else 2)
    fitting = max(int(SHARE * total_timesteps) // limit // unit, -(-least // unit)) * unit
    if fitting < agent.episodes_per_update:
        agent.episodes_per_update = fitting
        agent.use_env(agent.make_envs(num_envs=min(agent.num_envs, fitting)) if remakes else agent.env)
