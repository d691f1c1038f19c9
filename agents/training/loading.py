"""A checkpoint loaded as an agent, or its parts into another agent; `state.py` lists the parts."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rlenv._checks import first_line
from rlenv._settings import check_names, declared_by

from .. import processes
from ..errors import reading
from ..fsdp import frozen_from, has_part
from ..policies.base import MODEL, Policy
from ..rollouts.envs import (
    MissingEnv,
    check_spaces,
    form_of,
    full_id,
    seed_of,
    shares_stream,
    takes_tokenizer,
    traits_of,
)
from ..settings import is_kept
from .checkpoint import Checkpoint, read_checkpoint, space_of, while_unchanged
from .learned import learned_by, train_too
from .settings import AgentSettings
from .state import COUNTERS, Attributes, own_parts_of, parts_of

POLICY, OPTIMIZER = "policy", "policy.optimizer"  # in `Agent.get_parameters`


def load(
    cls: type[Any],
    path: str | Path | Checkpoint,
    env: Any,
    device: str | torch.device,
    trust: bool,
    continue_env: bool | None,
    settings: dict[str, Any],
) -> Any:
    """Read a checkpoint folder; see `Agent.load`."""

    def made_of(saved: Checkpoint) -> Any:
        known = class_of(saved, cls)
        if env is None and continue_env and saved.facts["env"] is None:
            raise ValueError(f"{str(saved.path)!r} does not name its environment: pass env=...")
        state = saved.training(copied=processes.size() == 1)
        with reading(saved.path):
            kept = [name for name in signature(known).parameters if is_kept(known, name)]
            check_names(known.__name__, saved.facts["settings"], kept)
        agent = known(saved.policy, device=device, **_arguments(saved, env, trust, settings))
        _restore(agent, saved, state, env is None, continue_env, settings)
        return agent

    return while_unchanged(path, made_of)


def _restore(
    agent: Any,
    saved: Checkpoint,
    state: Mapping[str, Any],
    saved_env: bool,
    continue_env: bool | None,
    given: Mapping[str, Any],
) -> None:
    """Go on from a checkpoint, in a new agent with its policy and settings.

    Args:
        agent: the new one.
        saved: the checkpoint.
        state: of the training.
        saved_env: whether the environment is the one that the checkpoint names, if any.
        continue_env: as for `Agent.load`.
        given: constructor arguments that replaced the saved ones.
    """
    if None not in saved.facts["spaces"].values():
        check_spaces("load", _missing_env(saved), agent.env, form_of)
    same = saved_env and not isinstance(agent.env, MissingEnv)
    if same:  # without the trust of this call, and with the name of a tokenizer that is gone
        asked = given.get("env_kwargs", saved.facts["env_kwargs"])
        known_as = {**agent.origin["env_kwargs"], **asked}
        agent.origin["env_kwargs"] = {key: known_as[key] for key in known_as if key != "trust" or key in asked}
    Attributes(agent, *COUNTERS).load_state_dict(saved.facts)
    wanted = agent.kl_coef or "kl_coef" not in given or agent.needs_teacher
    if (folder := saved.reference) and agent.anchor.reference is None and wanted:
        seen = agent.env.single_observation_space, agent.env.single_action_space
        with reading(folder):  # it may share weights with the loaded policy
            agent.anchor.reference = frozen_from(agent.policy, lambda whole: whole.load_frozen(folder, *seen))
    if continue_env is None:
        continue_env = same and given.keys().isdisjoint({"env_kwargs", "num_envs", "group_size", "seed"})
    train_too(agent)  # those that a constructor made
    parts = parts_of(agent)
    learned = [sorted(name for name in names if name.startswith("learned/")) for names in (state, parts)]
    if learned[0] != learned[1]:
        kept, sets = (", ".join(names).replace("learned/", "") or "none" for names in learned)
        raise ValueError(
            f"{str(saved.path)!r} has the modules {kept} of its agent; the setup of {type(agent).__name__} sets {sets}"
        )
    with reading(saved.path):
        for name, part in parts.items():
            if name != "order" or "seed" not in given:  # which was drawn from the seed that is given
                part.load_state_dict(state[name])
        _go_on(agent, state["moments"], continue_env, "seed" in given)
    for policy in filter(None, (agent.policy, agent.anchor.reference)):
        policy.adopt_tokenizer(agent.env.metadata)


def _go_on(agent: Any, moments: list[Mapping[str, Any]], continue_env: bool, own_seed: bool) -> None:
    """Restore the state from `moment_of` of each process; the generator of actions only without a seed of the user's.

    The moment of another number of processes has the same place in the stream of problems, if they share one; what
    they sampled is not continued.
    """
    own_process = len(moments) == processes.size()
    moment, parts = moments[processes.rank() if own_process else 0], own_parts_of(agent)
    fresh = int(np.random.SeedSequence([agent.seed, agent.num_updates]).generate_state(1)[0] >> 1)
    if own_seed or not own_process:
        del parts["actions"]
        if not own_seed:
            agent.generator.manual_seed(processes.own_seed(fresh))
    if continue_env and (own_process or shares_stream(agent.env)):
        agent.collector.seed(fresh)  # for an environment that did not say where it stood
    else:
        del parts["envs"]
        if continue_env:
            agent.collector.seed(seed_of(agent.env, fresh))
    for name, part in parts.items():
        part.load_state_dict(moment[name])


def class_of(saved: Checkpoint, cls: type[Any]) -> type[Any]:
    """Return the class of the agent in a checkpoint.

    Args:
        saved: the checkpoint.
        cls: the class that is to load it.

    Raises:
        ValueError: if it is not `cls` or below, or a class of the user's own, which no name leads to.
    """
    name = saved.facts["agent"]
    root = next(base for base in cls.__mro__ if vars(base).get("_is_root"))
    if name in cls._places:
        resolve_name(cls._places[name])  # imports it
    known = _class_named(name, cls, root) or cls
    ours = known.__module__.startswith("rlenv.")  # which write their name, that of the checkpoint
    if known is root or (ours and vars(known).get("name") != name):
        named = f", {name!r}" if name else ""
        raise ValueError(f"{str(saved.path)!r} holds an agent of a class of your own{named}: call that class's load()")
    if not issubclass(known, cls):
        raise ValueError(f"{str(saved.path)!r} holds a {known.__name__}, not a {cls.__name__}")
    return known


def _class_named(name: str | None, *roots: type[Any]) -> type[Any] | None:
    """Return the class that defines this `name`, among classes and their subclasses, the newest first."""
    for root in roots:
        if name is not None and vars(root).get("name") == name:
            return root
        found = _class_named(name, *reversed(root.__subclasses__()))
        if found is not None:
            return found
    return None


def _arguments(saved: Checkpoint, env: Any, trust: bool, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments besides the policy: the saved ones, replaced by the given ones.

    Args:
        saved: the checkpoint.
        env: an environment; None for the saved one, or, if that has no name, one that has its spaces and cannot be
            played. An environment that is not given by its id has its own slots and groups.
        trust: whether names in the checkpoint may import modules; see `named_by_checkpoint`.
        settings: keyword arguments that replace saved ones.

    Raises:
        ValueError: if an environment, trust or a function has to be given.
    """
    facts, kept = saved.facts, saved.facts["settings"]
    model = (saved.policy.folder / MODEL).resolve()
    own = str(model) if (model / "tokenizer_config.json").is_file() else ""
    for name in [name for name in map(str, facts["functions"]) if name not in settings]:
        raise ValueError(f"{str(saved.path)!r} was trained with a function as {name}: pass {name}=...")
    if env is None and facts["env"] is not None:
        arguments = {**kept, "env": facts["env"], "env_kwargs": facts["env_kwargs"], **settings}
        arguments["env_kwargs"] = named_by_checkpoint(arguments["env"], arguments["env_kwargs"], trust)
        named = arguments["env_kwargs"].get("tokenizer")
        if own and isinstance(named, str) and Path(named).is_absolute() and not Path(named).is_dir():  # it is gone
            arguments["env_kwargs"]["tokenizer"] = own
    else:
        env = _missing_env(saved) if env is None else env
        of_env = {} if isinstance(env, str) else {"num_envs": None, "group_size": None}
        arguments = {**kept, **of_env, "env": env, **settings}
        if own and takes_tokenizer(env):
            arguments["env_kwargs"] = {"tokenizer": own, **(settings.get("env_kwargs") or {})}
    return arguments


def named_by_checkpoint(env_id: str, env_kwargs: Mapping[str, Any], trust: bool) -> dict[str, Any]:
    """Return the arguments with which an environment that a checkpoint names is made.

    Args:
        env_id: in the checkpoint.
        env_kwargs: its arguments.
        trust: whether names in the checkpoint may import modules. Otherwise an environment with the setting `trust`
            gets trust=False, and the id may only name rlenv, what is registered, or a module that has been imported.

    Raises:
        ValueError: for the id of another module, without trust; for an unknown id.
    """
    module, _, name = env_id.rpartition(":")
    registered = module in sys.modules or (name in gym.registry and full_id(name) == env_id)
    if not trust and module not in ("", "rlenv") and not registered:
        raise ValueError(
            f"the checkpoint names the environment {env_id!r}, which imports {module!r} and may run any code; "
            "if you trust it, pass --trust (Python: trust=True)"
        )
    return {**env_kwargs, **({"trust": trust} if "trust" in traits_of(env_id).agent_settings else {})}


def _missing_env(saved: Checkpoint) -> MissingEnv:
    """Return the stand-in of an environment that has no name.

    Raises:
        ValueError: if the spaces could not be described.
    """
    spaces = saved.facts["spaces"]
    if None in (spaces.get("observation"), spaces.get("action")):
        raise ValueError(f"{str(saved.path)!r} does not name its environment: pass env=...")
    size = declared_by(AgentSettings)["group_size"].check(saved.facts["settings"].get("group_size"))
    return MissingEnv(space_of(spaces["observation"]), space_of(spaces["action"]), size)


# Weights and the optimizer's state by name, as stable-baselines3 gives and takes them.


def parameters_of(agent: Any) -> dict[str, dict[str, Any]]:
    """Return copies of the weights and of the optimizer's state; see `Agent.get_parameters`."""
    _check_whole(agent.policy, "get_parameters")
    parts = {OPTIMIZER: agent.policy_optimizer, **learned_by(agent)}
    states = {name: part.state_dict() for name, part in parts.items()}
    return copy.deepcopy({POLICY: dict(agent.policy.state_dict()), **states})


def set_parameters(agent: Any, given: Mapping[str, Any] | str | Path, exact_match: bool) -> None:
    """Replace weights and the optimizer's state; see `Agent.set_parameters`."""
    _check_whole(agent.policy, "set_parameters")
    if not isinstance(given, Mapping):
        path, spaces = Path(given), (agent.env.single_observation_space, agent.env.single_action_space)
        saved = read_checkpoint(path)
        if saved.policy.kind != agent.policy.kind:
            kinds = f"of kind {saved.policy.kind!r}, not a {agent.policy.kind!r}"
            raise ValueError(f"{str(path)!r} holds a policy {kinds}")
        state = saved.training()
        given = {POLICY: saved.policy.load(*spaces).state_dict(), OPTIMIZER: state["optimizer"]}
        given |= {name.removeprefix("learned/"): state[name] for name in state if name.startswith("learned/")}
    train_too(agent)  # those that a constructor made
    parts = {OPTIMIZER: agent.policy_optimizer, **learned_by(agent)}
    known = [POLICY, *parts]
    if not set(known).issuperset(given) or (exact_match and len(given) < len(known)):
        raise ValueError(
            f"set_parameters takes {', '.join(map(repr, known))}, as get_parameters returns them, or some of them "
            f"with exact_match=False; got {', '.join(map(repr, given)) or 'nothing'}"
        )
    if POLICY in given:
        agent.policy.load_state_dict(_fitting(agent.policy, given[POLICY], exact_match), strict=False)
    for name in given.keys() & parts.keys():
        try:
            parts[name].load_state_dict(copy.deepcopy(given[name]))
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"set_parameters: {name!r} does not fit: {first_line(error)}") from error


def _check_whole(policy: Policy, what: str) -> None:
    """Refuse a sharded policy for an operation that needs all weights in one process.

    Raises:
        ValueError: if the policy is dealt out.
    """
    if has_part(policy):
        raise ValueError(f"{what} needs all weights in one process; with shard, use save and load")


def _fitting(policy: Policy, given: Mapping[str, Any], exact_match: bool) -> dict[str, torch.Tensor]:
    """Return the given weights if they fit the policy's own; nothing has been changed if they do not."""
    own = policy.state_dict()
    wrong = [name for name in given if name not in own or not isinstance(given[name], torch.Tensor)]
    wrong += [name for name in own if exact_match and name not in given]
    wrong += [name for name in own if name in given and name not in wrong and given[name].shape != own[name].shape]
    if wrong:
        raise ValueError(
            f"set_parameters: {wrong[0]!r} does not fit the policy: give the weights that get_parameters returns, or "
            "some of them with exact_match=False"
        )
    return dict(given)
