"""How many episodes per update and how many slots, unless the user says; fewer for a small budget of steps."""

from __future__ import annotations

from typing import Any

from ..core.checks import MOST_SLOTS, check_count
from ..core.defaults import default_of
from ..distributed import parallel
from ..policies import Policy, kind_of
from ..rollouts.envs.make_envs import longest_episode

SHARE = 1 / 2  # of the budget: what the longest episodes of a rollout may take


def sizes(agent: type, policy: Any, for_text: bool, asked: tuple[int | None, int | None]) -> tuple[int, int]:
    """Return the episodes of an update and the slots of an environment.

    Args:
        agent: the class.
        policy: as for `make_policy`; it need not be made yet.
        for_text: whether the environment is known to be one of text.
        asked: what the user asked for; None for the default of the policy, else of its kind.
    """
    kind = kind_of(policy, for_text)

    def usual(name: str) -> Any:
        own = policy.default(name) if isinstance(policy, Policy) else None
        return default_of(name, agent, kind) if own is None else own

    episodes, slots = asked
    episodes = check_count("episodes_per_update", usual("episodes_per_update") if episodes is None else episodes)
    slots = min(usual("num_envs"), episodes) if slots is None else slots
    return episodes, check_count("num_envs", slots, high=MOST_SLOTS)


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
