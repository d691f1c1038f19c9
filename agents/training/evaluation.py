"""Evaluations and replays: fresh episodes without learning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from .. import processes
from ..devices import to_host
from ..errors import NOT_CHOSEN, VerifierError
from ..fsdp import gathered
from ..policies import Policy
from ..rollout import Rollout
from ..rollouts.collector import Collector, OnStep
from ..rollouts.env_state import env_state, load_env_state
from ..rollouts.envs import LOOP_SETTINGS, check_replays, make_envs, seed_of, shares_stream
from .metrics import mean_by_level, mean_of
from .player import Part, Player, played, whole_of


@contextmanager
def opened(env: Any, slots: int, env_kwargs: Mapping[str, Any], device: torch.device) -> Iterator[VectorEnv]:
    """Yield the environment of an evaluation; one that is made from an id is closed again.

    Raises:
        ValueError: as `make_envs`.
    """
    made = make_envs(env, max(slots, 1), env_kwargs, group_size=1, device=str(device), **LOOP_SETTINGS)
    with closing(made) if isinstance(env, str) else nullcontext():
        yield made


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
    if on_step is not None:  # asked while verdicts are late, too
        collector.goes_on = partial(on_step, 0, {"dones": np.zeros(0, bool), "infos": {}, "rewards": np.zeros(0)})
    policy.adopt_tokenizer(collector.envs.metadata)
    if seed is not None:
        collector.seed(seed_of(collector.envs, seed))
        generator = torch.Generator(generator.device).manual_seed(processes.own_seed(seed))
    count = processes.share(num_episodes, collector.envs.metadata.get("group_size") or 1)

    def play(acting: Any) -> tuple[Rollout | None, str]:
        if not count:  # there are more processes than groups
            return None, ""
        rollout = collector.collect(acting, count, generator, deterministic, on_step, progress)
        if rollout is None:
            raise ValueError("on_step must return True, or raise an exception to end the evaluation")
        return rollout, collector.failure

    with gathered(policy) if player is None else player.acting() as acting:
        parts = processes.on_all(lambda: play(acting))
    found = [part for part, _ in parts if part is not None]
    rollout = whole_of(collector.envs, found, policy, generator.device)
    if bool(rollout.log_probs[rollout.mask].isnan().any()):  # training skips an update on such episodes, too
        warnings.warn(f"evaluate: {NOT_CHOSEN}", stacklevel=3)
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
    return whole.select(rows)


def evaluation_metrics(rollout: Rollout, failure: str = "") -> dict[str, Any]:
    """Return the metrics of an evaluation, over the episodes that got a verdict.

    Args:
        rollout: the episodes.
        failure: why the verifier failed the last time.

    Raises:
        VerifierError: if none got one.
    """
    ok, success, returns = rollout.ok, rollout.success, rollout.returns
    levels, turns = (rollout.extras.get(name) for name in ("level", "turns"))
    if not bool(ok.any()):
        why = f": {failure}" if failure else ""
        raise VerifierError(f"the verifier reached no verdict on all {len(ok)} episodes of the evaluation{why}")
    known = ~success[ok].isnan()
    by_level = {} if levels is None else mean_by_level(levels, success, ok)
    return {
        "episodes": int(ok.sum()),
        "mean_reward": mean_of(returns[ok]),
        "reward_std": float(to_host(returns[ok])[0].double().std(correction=0)),
        "success_rate": mean_of(success[ok][known]) if bool(known.any()) else None,
        **({"success_known": mean_of(known.float())} if bool(known.any()) and not bool(known.all()) else {}),
        "mean_ep_length": mean_of(rollout.lengths[ok]),
        **({"failed": int((~ok).sum()), "failure": failure} if bool((~ok).any()) else {}),
        **({"success_by_level": {str(level): rate for level, rate in by_level.items()}} if by_level else {}),
        **({} if turns is None else _by_turns(turns[ok], success[ok])),
    }


def _by_turns(turns: torch.Tensor, success: torch.Tensor) -> dict[str, Any]:
    """Return the mean number of turns of dialogues, and by number of turns how many there are and their success."""
    counted = turns[~turns.isnan()]
    if not len(counted):
        return {}
    by_turns = {}
    for number in counted.unique().tolist():
        known = success[turns == number]
        known = known[~known.isnan()]
        rate = mean_of(known) if len(known) else None
        by_turns[str(int(number))] = {"episodes": int((turns == number).sum()), "success_rate": rate}
    return {"mean_turns": mean_of(counted), "by_turns": by_turns}
