"""Evaluations and replays: fresh episodes without learning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import torch
from gymnasium.vector import VectorEnv

from .. import processes
from ..fsdp import gathered
from ..policies import Policy
from ..rollout import Rollout
from ..rollouts.collector import Collector, OnStep
from ..rollouts.env_state import env_state, load_env_state
from ..rollouts.envs import LOOP_SETTINGS, check_replays, make_envs, seed_of, shares_stream
from .metrics import evaluation_metrics
from .player import Part, Player, played, whole_of


@contextmanager
def opened(
    env: Any, slots: int, own: Mapping[str, Any] | None, changes: Mapping[str, Any] | None, device: torch.device
) -> Iterator[VectorEnv]:
    """Yield the environment of an evaluation; one that is made from an id is closed again.

    Raises:
        ValueError: for `changes` beside an environment that is made already, and as `make_envs` says.
    """
    if isinstance(env, str):
        kwargs = {**(own or {}), **(changes or {})}
        with closing(make_envs(env, max(slots, 1), kwargs, group_size=1, device=str(device), **LOOP_SETTINGS)) as made:
            yield made
    elif changes:
        raise ValueError(f"env_kwargs={dict(changes)} is for the id of an environment, got {env!r}: leave it out")
    else:
        yield make_envs(env, 1, None)


def evaluate(
    policy: Policy,
    env: VectorEnv,
    num_episodes: int,
    deterministic: bool,
    seed: int | None,
    generator: torch.Generator,
    on_step: OnStep | None = None,
    progress: Mapping[str, Any] | None = None,
    player: Player | None = None,
) -> tuple[dict[str, Any], Rollout]:
    """Play fresh episodes to their end; see `Agent.evaluate`."""
    collector = Collector(env, generator.device)
    policy.adopt_tokenizer(collector.envs.metadata)
    if seed is not None:
        collector.seed(seed_of(collector.envs, seed))
        generator = torch.Generator(generator.device).manual_seed(processes.own_seed(seed))
    count = processes.share(num_episodes, collector.envs.metadata.get("group_size") or 1)

    def play(acting: Any) -> tuple[Rollout | None, str]:
        rollout = collector.collect(acting, count, generator, deterministic, on_step, progress)
        if rollout is None:
            raise ValueError("on_step must return True, or raise an exception to end the evaluation")
        return rollout, collector.failure

    with gathered(policy) if player is None else player.acting() as acting:
        parts = processes.on_all(lambda: play(acting or policy))
    rollout = whole_of(collector.envs, [part for part, _ in parts], policy, generator.device)
    failure = next((reason for _, reason in parts if reason), "")
    return evaluation_metrics(rollout, failure) | {"deterministic": deterministic}, rollout


def replay(agent: Any, rollout: Rollout, deterministic: bool) -> Rollout:
    """Play the prompts of a rollout again; see `Agent.replay`."""
    env, size = agent.env, processes.size()
    check_replays(env, "replay")
    if deterministic:
        groups, rows = rollout.groups.unique(return_inverse=True)  # [M], [N]
    else:
        groups, order = rollout.groups.sort(stable=True)
        rows = order.argsort()
    own = groups[groups % size == processes.rank()].cpu()  # those that this process has posed
    posed = own if size == 1 or shares_stream(env) else own // size

    def play(acting: Any) -> Part:
        if not len(own):
            return None, 0
        collector, source = Collector(env, agent.device), None if deterministic else agent.generator
        how = source, deterministic, None, agent.progress, posed.tolist()
        found, steps = played(agent, collector, acting, len(own), *how)
        assert found is not None
        return replace(found, groups=own.to(found.groups)), steps

    with agent.player.acting() as acting:
        place = env_state(env)
        try:
            parts = processes.on_all(lambda: play(acting))
        finally:
            if place is not None:
                load_env_state(env, place)
    agent.num_timesteps += sum(steps for _, steps in parts)
    found = [part for part, _ in parts if part is not None]
    whole: Rollout = processes.merge_rollouts(found, agent.policy.obs_from_actions, agent.device, numbered=True)
    return processes.on(whole, agent.device).select(rows)
