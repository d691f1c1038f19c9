"""Players of an update's episodes: here the policy plays, in `engines/player.py` an engine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from gymnasium.vector import VectorEnv

from .. import processes
from ..fsdp import gather_weights, gathered
from ..policies import Policy
from ..rollout import Rollout
from ..rollouts.collector import Collector, OnStep
from ..rollouts.envs import shares_stream

Part = tuple[Rollout | None, int]  # episodes, and how many steps they took


class Player:
    """Plays the episodes of an agent's updates with its policy.

    Args:
        agent: has the policy, the collector and the settings.

    Attributes:
        figures: further metrics of the last rollout.
        moment: states of the agent's parts before a rollout that is under way, by name; others are as they are.
    """

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.figures: dict[str, float] = {}
        self.moment: dict[str, Any] = {}

    def acting(self) -> AbstractContextManager[Any]:
        """Within this context, the yielded policy or engine acts with the present weights; all processes enter it."""
        return gathered(self.agent.policy)

    def collect(self, on_step: OnStep) -> Part:
        """Return the next update's episodes of all processes, None if `on_step` ended it, and the number of steps."""
        agent, parts = self.agent, self.collect_parts(on_step)
        whole = whole_of(agent.env, [part for part, _ in parts], agent.policy, agent.device)
        return whole, sum(taken for _, taken in parts)

    def collect_parts(self, on_step: OnStep) -> list[Part]:
        """Return the episodes of each process."""
        gather_weights(self.agent.policy)
        return processes.on_all(lambda: self.play(self.agent.policy, on_step, self.agent.progress))

    def look_ahead(self) -> None:
        """Begin the next rollout before this one is trained on, if the agent may be that stale."""

    def drop_ahead(self) -> None:
        """Go back to where a rollout began that will not be trained on, if any."""

    def play(self, acting: Any, on_step: OnStep, progress: Mapping[str, Any]) -> Part:
        """Play this process's episodes."""
        agent = self.agent
        how = agent.generator, False, on_step, progress
        return played(agent, agent.collector, acting, agent.own_episodes, *how)


def played(agent: Any, collector: Collector, *how: Any) -> Part:
    """Return the episodes of a collector for an agent, and add to its seconds; `how`: as for `Collector.collect`."""
    rollout = collector.collect(*how)
    for part, spent in collector.seconds.items():
        agent.seconds[part] += spent
    return rollout, collector.steps


def whole_of(env: VectorEnv, parts: list[Any], policy: Policy, device: torch.device) -> Any:
    """Return the rollouts of all processes as one; see `processes.merge_rollouts`."""
    if processes.size() == 1:
        return parts[0]
    numbered = env.metadata.get("group_size") is None or shares_stream(env)
    return processes.merge_rollouts(parts, policy.obs_from_actions, device, numbered)


def tell_verdicts(env: VectorEnv, rollout: Rollout) -> None:
    """Tell an environment with a curriculum that has judged its own share of a rollout how all of it ended."""
    if env.metadata.get("hears_verdicts"):
        judged = rollout.ok & ~rollout.success.isnan()
        level = rollout.extras.get("level", torch.ones_like(rollout.success)).nan_to_num(1.0)
        chosen = rollout.extras.get("prompt_arm", level)
        env.unwrapped.record_outcomes(chosen[judged].tolist(), rollout.success[judged].tolist())
