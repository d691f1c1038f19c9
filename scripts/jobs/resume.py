"""`rlenv train --resume RUN`: the options that may change, and the agent of the newest whole checkpoint."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

from rlenv.agents import Agent, processes
from rlenv.agents.rollouts.envs import full_id, named_by_checkpoint
from rlenv.agents.training.checkpoint import Checkpoint

from ..config.arguments import agent_arguments, resolved
from ..config.names import agent_class, class_saved
from ..config.parameters import flag_of, typed
from ..process.progress import say
from ..run.folder import CONFIG, Run
from . import session

# These may differ from what the run began with.
CHANGEABLE = (
    "timesteps", "episodes", "stop_reward", "eval_every", "log_interval", "save_every", "save_every_updates", "keep",
    "track", "verifier_workers", "device", "shard", "learning_rate", "engine", "engine_url", "engine_args", "staleness",
)  # fmt: skip


def continued(given: dict[str, Any]) -> tuple[Agent, Run]:
    """Return the agent of a run that is resumed, from its newest whole checkpoint, and the run.

    Args:
        given: the options of the running command, those of the run among them.

    Raises:
        ValueError: for an option that the run began with another value of, or a run without a whole checkpoint.
    """
    run = Run(given["resume"])
    run.check_links()
    processes.on_main(run.lock)
    # config.json is a file that others may have written: it may name no more than a checkpoint may.
    named_by_checkpoint(given["env_id"], {}, given["trust_checkpoint"])
    if not typed("agent"):
        class_saved(given["agent"], given["trust_checkpoint"])
    begun = run.config
    _check_options(given, begun)
    _check_engine(given)
    if "agent" not in begun:
        raise ValueError(
            f"{str(run.path)!r} is a run of rlenv sft; continue with: rlenv train --model "
            f"{shlex.quote(str(run.path))} --sft-steps 0"
        )
    checkpoint = processes.on_main(run.newest)
    if checkpoint is None:
        say(f"{str(run.path)!r} has no checkpoint yet: the run starts again from its beginning")
        return session.build_agent(given["agent"], given), run
    if not processes.is_main():
        checkpoint = replace(checkpoint, version=None)  # each process makes sure of the files that it reads
    return _loaded(checkpoint, given), run


def _loaded(checkpoint: Checkpoint, given: dict[str, Any]) -> Agent:
    """Return the agent of a checkpoint, with the device and the worker processes of the options.

    Raises:
        ValueError: if the checkpoint is of another agent or other settings, and as `Agent.load` says.
    """
    cls, path = agent_class(given["agent"]), str(checkpoint.path)
    saved = {name: checkpoint.facts[name] for name in ("agent", "env")} | checkpoint.facts["settings"]
    named = {"agent": given["agent"], "env": full_id(given["env_id"])} | agent_arguments(given["agent"], cls, given)
    for name, value in named.items():
        if name not in CHANGEABLE and saved.get(name, value) != value:
            raise ValueError(f"{path!r} has {name} {saved[name]!r}, but config.json names {name} {value!r}")
    env_kwargs, trust = dict(checkpoint.facts["env_kwargs"] or {}), given["trust_checkpoint"]
    if given["verifier_workers"] is not None:
        env_kwargs["verifier_workers"] = given["verifier_workers"]
    here = ("device", "shard", "learning_rate", "engine", "engine_url", "staleness")  # which no checkpoint keeps
    changed = {name: given[name] for name in here if given[name] is not None}
    changed["engine_kwargs"] = dict(given["engine_args"]) or None
    agent: Agent = cls.load(checkpoint, continue_env=True, trust=trust, env_kwargs=env_kwargs, **changed)
    session.name_class(agent, given["agent"])
    return agent


def _check_engine(given: dict[str, Any]) -> None:
    """Refuse to contact a server, or to start an engine with arguments, that only config.json names."""
    for name in ("engine_url", "engine_args"):
        if given[name] and not typed(name) and not given["trust_checkpoint"]:
            flag, config = flag_of(name), str(given["resume"] / CONFIG)
            raise ValueError(f"{config!r} names {flag} {given[name]}; if you trust it, pass --trust or {flag} itself")


def _check_options(given: dict[str, Any], begun: dict[str, Any]) -> None:
    """Refuse typed options that cannot change, and a configuration that lifts the sandbox."""
    for name in ("log_dir", "overwrite", "task"):
        if typed(name):
            raise ValueError(f"{flag_of(name)} has no meaning with --resume, which continues its own run in its folder")
    for name, value in resolved(given).items():
        if typed(name) and name not in CHANGEABLE and json.loads(json.dumps(value, default=str)) != begun.get(name):
            flag, allowed = flag_of(name), ", ".join(map(flag_of, CHANGEABLE))
            raise ValueError(
                f"{flag} {value} is not what the run began with ({begun.get(name, f'no {flag}')}); "
                f"with --resume these may change: {allowed}"
            )
    if given["unsafe_local_exec"] and not typed("unsafe_local_exec"):
        config = str(given["resume"] / CONFIG)
        raise ValueError(f"{config!r} lifts the sandbox; if you agree, pass --unsafe-local-exec")
