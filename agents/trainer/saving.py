"""What of an agent is saved, and how it is put together again; `checkpoint.py` writes and reads the folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoints.checkpoint import COUNTERS, Checkpoint, read_checkpoint, write_checkpoint
from ..checkpoints.sharded import write_sharded_checkpoint
from ..checkpoints.spaces import described, space_of
from ..core.checks import check_optional_count
from ..core.files import reading
from ..core.settings import check_names, class_named, functions_of
from ..distributed import parallel
from ..distributed.parts import whole_parts
from ..distributed.shards import whole
from ..policies.base import MODEL, weights_digest
from ..rollouts.envs.make_envs import MissingEnv, deals_groups, named_by_checkpoint, seed_of
from . import log_entry


def moment_of(agent: Any) -> dict[str, Any]:
    """Return what changes while a rollout is collected, as it is now."""
    return {
        "counters": {name: getattr(agent, name) for name in COUNTERS},
        "generator": agent.generator.get_state(),
        "order": agent.order_generator.get_state(),
        "device": agent.generator.device.type,
        "envs": agent.collector.state_dict(),
        "failures": agent.failure_watch.state_dict(),
        "stability": agent.stability_watch.state_dict(),
        "metrics": dict(agent.last_metrics),
    }


def save(agent: Any, path: Path, previous: Path | None, whole_policy: bool) -> None:
    """Write a checkpoint; see `Agent.save`."""
    if agent.updating:
        raise RuntimeError(
            f"update {agent.num_updates + 1} did not end: its weights and its optimizer do not fit together; "
            f"{str(path)!r} is left as it is: load the last checkpoint, or continue with learn()"
        )
    parallel.together(agent.anchor.check_reference)
    if parallel.size() > 1 and not agent.policy.sharded:
        parallel.check_equal(weights_digest(agent.policy))
    own_name = vars(type(agent)).get("name")  # None for a class of your own, which loads its checkpoints itself
    facts = {"agent": own_name, "policy_kind": agent.policy.kind, "settings": agent.settings, **agent.origin}
    spaces = {"observation": agent.env.single_observation_space, "action": agent.env.single_action_space}
    facts |= {"spaces": {name: described(space) for name, space in spaces.items()}, "functions": functions_of(agent)}
    moment = dict(agent.before_rollout or moment_of(agent))
    agent.collector.warn_of_loss(moment["envs"])
    facts |= moment.pop("counters")
    unwritten = agent.unwritten | ({} if agent._logger is None else log_entry.pending(agent._logger))
    moments = parallel.gather(moment)
    state = {
        **agent.training_state(),
        "moment": moments[0],
        "unwritten": unwritten,
        "extra": whole_parts(agent.extra_state),
    }
    if len(moments) > 1:
        state["other_moments"] = moments[1:]
    reference = agent.anchor.reference
    if agent.sharded_checkpoints:
        write_sharded_checkpoint(path, facts, agent.policy, reference, state, previous, whole_policy)
        return
    state = whole(state)
    policies = agent.policy.to_save(), None if reference is None else reference.to_save()
    parallel.on_main(lambda: write_checkpoint(path, facts, *policies, state, previous))


def load(
    cls: Any,
    root: Any,
    path: Path,
    env: Any,
    device: Any,
    trust: bool,
    continue_env: bool | None,
    settings: dict[str, Any],
) -> Any:
    """Return the agent of a checkpoint; see `Agent.load`.

    Args:
        cls: the class whose `load` was called.
        root: of all agents.
    """
    saved = read_checkpoint(path)
    known = class_named(saved.facts["agent"], cls, root) or cls
    if known is root:
        named = f", {saved.facts['agent']!r}" if saved.facts["agent"] else ""
        raise ValueError(f"{str(path)!r} holds an agent of a class of your own{named}: call that class's load()")
    if not issubclass(known, cls):
        raise ValueError(f"{str(path)!r} holds a {known.__name__}, not a {cls.__name__}")
    if env is None and continue_env and saved.facts["env"] is None:
        raise ValueError(f"{str(path)!r} does not name its environment: pass env=...")
    state = saved.training(copied=not settings.get("shard"))
    with reading(path):
        check_names(known, saved.facts["settings"])
    agent = known(saved.policy, device=device, **_arguments(saved, env, trust, settings))
    has_env = not isinstance(agent.env, MissingEnv)
    if env is None and has_env:  # without the trust of this call, and with the name of a tokenizer that is gone
        asked = settings.get("env_kwargs", saved.facts["env_kwargs"])
        known_as = {**agent.origin["env_kwargs"], **asked}
        agent.origin["env_kwargs"] = {key: known_as[key] for key in known_as if key != "trust" or key in asked}
    for name in COUNTERS:
        setattr(agent, name, saved.facts.get(name, 0))  # checkpoints of earlier versions have no trained_timesteps
    if agent.kl_coef or "kl_coef" not in settings:
        agent.anchor.reference = saved.load_reference(agent.policy, agent.env)
    same = env is None and has_env and settings.keys().isdisjoint({"env_kwargs", "num_envs", "group_size", "seed"})
    with reading(path):
        agent.load_training_state(state)
        moment, own_process = _own_moment(state)
        continues = same if continue_env is None else continue_env
        _continue_from(agent, moment, continues, "seed" in settings, own_process)
        agent.unwritten, agent.extra_state = log_entry.checked(state["unwritten"]), dict(state["extra"])
    for policy in filter(None, (agent.policy, agent.anchor.reference)):
        policy.adopt_tokenizer(agent.env.metadata)
    return agent


def _arguments(saved: Checkpoint, env: Any, trust: bool, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments besides the policy: the saved ones, replaced by those given.

    Args:
        saved: the checkpoint.
        env: an environment; None for the saved one, or, if that has no name, one that has its spaces and cannot be
            played. Another one has its own slots and groups.
        trust: whether names in the checkpoint may import modules; see `make_envs.named_by_checkpoint`.
        settings: keyword arguments that replace saved ones.

    Raises:
        ValueError: if an environment, trust or a learning rate has to be given.
    """
    kept = {"learning_rate": None, **saved.facts["settings"]}
    for name in [name for name in saved.facts.get("functions", []) if name not in settings]:
        raise ValueError(f"{str(saved.path)!r} was trained with a function as {name}: pass {name}=...")
    if env is None and saved.facts["env"] is None:
        env = _missing_env(saved)
    if env is None:
        arguments = {**kept, "env": saved.facts["env"], "env_kwargs": saved.facts["env_kwargs"], **settings}
        own = saved.facts["env_kwargs"]
        arguments["env_kwargs"] = named_by_checkpoint(arguments["env"], arguments["env_kwargs"], trust, own)
        if _has_the_only(saved, arguments["env_kwargs"].get("tokenizer")):
            arguments["env_kwargs"]["tokenizer"] = str(saved.policy.folder / MODEL)
    else:
        arguments = {**kept, "env": env, "num_envs": None, "group_size": None, **settings}
    if arguments["learning_rate"] is None:
        raise ValueError(f"{str(saved.path)!r} was trained with a function as learning_rate: pass learning_rate=...")
    return arguments


def _has_the_only(saved: Checkpoint, tokenizer: Any) -> bool:
    """Tell whether the folder of this tokenizer is gone, but the policy has a copy of it."""
    copy = saved.policy.folder / MODEL / "tokenizer_config.json"
    gone = isinstance(tokenizer, str) and Path(tokenizer).is_absolute() and not Path(tokenizer).is_dir()
    return gone and copy.is_file()


def _missing_env(saved: Checkpoint) -> MissingEnv:
    """Return what stands for an environment that has no name.

    Raises:
        ValueError: if an earlier version wrote the checkpoint, without the spaces.
    """
    spaces = saved.facts.get("spaces") or {}
    if None in (spaces.get("observation"), spaces.get("action")):
        raise ValueError(f"{str(saved.path)!r} does not name its environment: pass env=...")
    size = check_optional_count("group_size", saved.facts["settings"].get("group_size"))
    return MissingEnv(space_of(spaces["observation"]), space_of(spaces["action"]), size)


def _own_moment(state: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Return the moment of this process, and whether as many processes wrote the checkpoint; else the main one's."""
    moments = [state["moment"], *state.get("other_moments", ())]
    same_number = len(moments) == parallel.size()
    return moments[parallel.rank() if same_number else 0], same_number


def _continue_from(
    agent: Any, moment: Mapping[str, Any], continue_env: bool, own_seed: bool, own_process: bool = True
) -> None:
    """Restore what `moment_of` returned; the generator only on the same kind of device, and without a seed given.

    The moment of another number of processes has the same place in the stream of problems, if they share one; what
    they sampled is not continued.
    """
    fresh = int(np.random.SeedSequence([agent.seed, agent.num_updates]).generate_state(1)[0] >> 1)
    if moment["device"] == agent.generator.device.type and not own_seed:
        if own_process:
            agent.generator.set_state(moment["generator"])
            agent.order_generator.set_state(moment.get("order", moment["generator"]))
        else:
            agent.generator.manual_seed(parallel.own_seed(fresh))
            agent.order_generator.manual_seed(fresh)
    if "envs" not in moment:  # checkpoints of format 2 had no more
        return
    if continue_env and not own_process and not deals_groups(agent.env):
        agent.collector.seed(seed_of(agent.env, fresh))
    elif continue_env:
        try:
            agent.collector.load_state_dict(moment["envs"], fresh)
        except ValueError as error:
            raise ValueError(f"{error} (in Python, continue_env=False starts the environment anew)") from error
    agent.failure_watch.load_state_dict(moment["failures"])
    agent.stability_watch.load_state_dict(moment["stability"])
    agent.last_metrics = moment["metrics"]
