"""The rest of a run: the options that may change, and the agent of the newest whole checkpoint."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from rlenv._settings import declared_by
from rlenv.agents import Agent, processes
from rlenv.agents.rollouts.envs import full_id
from rlenv.agents.training.checkpoint import Checkpoint
from rlenv.agents.training.loading import named_by_checkpoint

from ..config.arguments import agent_arguments, build_agent, env_arguments, name_class
from ..config.base import LOCAL, Config, named, overlaid, read_table
from ..config.configs import SftConfig, TrainConfig
from ..config.names import OBJECTS, agent_class, class_saved, objects_in, resume_command, resume_config
from ..process import torchrun
from ..process.progress import say
from ..run.folder import CHECKPOINT, CONFIG, RunFolder

# These may differ from what the run began with; of the problems, the place alone: a checkpoint knows their content.
CHANGEABLE = (
    "timesteps", "episodes", "stop_reward", "eval_every", "log_interval", "save_every", "save_every_updates", "keep",
    "track", "problems", "verifier_workers", "device", "shard", "learning_rate",
    "engine", "engine_url", "engine_kwargs", "staleness",
)  # fmt: skip
R = TypeVar("R", TrainConfig, SftConfig)


def begun_config(config: R) -> R:
    """Return the config of the run that is resumed, in which the options given now replace the earlier ones.

    Raises:
        ValueError: if the folder is not a run's, or the run was given an object of Python that is not passed.
    """
    assert config.resume is not None
    where = str(config.resume)
    kept = RunFolder(config.resume).config
    objects = objects_in(kept)
    if gone := objects.keys() - objects_of(config) - config.settings.keys():
        named_there = ", ".join(f"{name} {value}" for name, (value, _) in objects.items() if name in gone)
        passed = (how for name, (_, how) in objects.items() if name in gone)
        advice = f"go on from Python, with {resume_config(type(config).__name__, where, passed)}"
        raise ValueError(f"{where!r} was trained with objects of Python: {named_there}; {advice}")
    for name in objects.keys() - OBJECTS:
        kept.pop(name, None)
    command, run = "train" if "agent" in kept else "sft", shlex.quote(where)
    if (command == "train") != isinstance(config, TrainConfig):
        learn = f"; learn from rewards: rlenv train --model {run} --sft-steps 0" if command == "sft" else ""
        again = f"go on with it: rlenv {command} --resume {run}{learn}"
        raise ValueError(f"{where!r} is a run of rlenv {command}; {again}")
    begun = read_table(type(config), kept, str(config.resume / CONFIG))
    own = {name: value for name, value in begun.items() if name not in LOCAL}  # however the file spells them
    changes = {name: getattr(config, name) for name in config.chosen & declared_by(type(config)).keys() | {"settings"}}
    whole = type(config)(**overlaid(own, changes))
    whole.typed = config.typed
    return whole


def end_interrupted(folder: Path, number: int) -> NoReturn:
    """Say how the run in a folder goes on, and exit as after the signal that has ended it."""
    if torchrun.number() == 0:  # the folder of the others may be on another machine
        again = resume_command(folder, RunFolder(folder).config)
        click.echo(f"Interrupted; checkpoint written to {folder / CHECKPOINT}. To go on: {again}", err=True)
    sys.exit(128 + number)


def objects_of(config: Config) -> set[str]:
    """Return the arguments in place of which Python passes objects."""
    return objects_in(config.flat()).keys() & OBJECTS


def reopened(config: TrainConfig | SftConfig, held: ExitStack) -> tuple[RunFolder, Checkpoint | None]:
    """Return the run that is resumed, and its newest whole checkpoint; None before the first one, with a line.

    Raises:
        ValueError: for an option that the run began with another value of, or a run without a whole checkpoint.
    """
    assert config.resume is not None
    run = RunFolder(config.resume)
    run.check_links()
    processes.on_main(lambda: run.lock(held))
    # config.json is a file that others may have written: it may name no more than a checkpoint may.
    named_by_checkpoint(config.env_id, {}, config.trust)
    _check_options(config, run.config)
    checkpoint = processes.on_main(run.newest)
    if checkpoint is None:
        say(f"{str(run.path)!r} has no checkpoint yet: the run starts again from its beginning")
    return run, checkpoint


def continued(config: TrainConfig, held: ExitStack) -> tuple[Agent, RunFolder]:
    """Return the agent of a run that is resumed, from its newest whole checkpoint, and the run.

    Args:
        config: of the run, with the options given now.
        held: keeps the folder locked.

    Raises:
        ValueError: for an option that the run began with another value of, or a run without a whole checkpoint.
    """
    run, checkpoint = reopened(config, held)
    if "agent" not in config.typed:
        class_saved(named(config.agent), config.trust)
    if checkpoint is None:
        return build_agent(config.agent, config), run
    if not processes.is_main():
        checkpoint = replace(checkpoint, version=None)  # each process makes sure of the files that it reads
    return _loaded(checkpoint, config), run


def _loaded(checkpoint: Checkpoint, config: TrainConfig) -> Agent:
    """Return the agent of a checkpoint, with the device and the worker processes of the config.

    Raises:
        ValueError: if the checkpoint is of another agent or other settings, and as `Agent.load` says.
    """
    cls, path, name = agent_class(config.agent), str(checkpoint.path), named(config.agent)
    saved = {key: checkpoint.facts[key] for key in ("agent", "env")} | checkpoint.facts["settings"]
    settings = {"agent": name, "env": full_id(config.env_id)} | agent_arguments(config, cls, name)
    for key, value in settings.items():
        if key not in CHANGEABLE and saved.get(key, value) not in (value, None) and not callable(value):
            raise ValueError(f"{path!r} has {key} {saved[key]!r}, but config.json names {key} {value!r}")
    env_kwargs, trust = dict(checkpoint.facts["env_kwargs"] or {}), config.trust
    own_env: dict[str, Any] = {}
    if objects_of(config) - {"agent"}:  # no checkpoint names an environment with objects: the config does
        own_env = {key: checkpoint.facts["settings"].get(key) for key in ("num_envs", "group_size")}
        own_env["env"] = config.env_id
        env_kwargs = env_arguments(config, config.env_id, config.env_kwargs, config.model)
    of_place = {name: getattr(config, name) for name in ("problems", "verifier_workers")}  # which the machine decides
    env_kwargs |= {name: value for name, value in of_place.items() if value is not None}
    here = ("device", "shard", "learning_rate", "engine", "engine_url", "staleness")  # which no checkpoint keeps
    known = {"device": config.device, **config.settings}
    changed = {key: value for key, value in known.items() if key in here or callable(value)}
    changed["engine_kwargs"] = dict(config.engine_kwargs) or None
    changed |= own_env | {"env_kwargs": env_kwargs}
    agent: Agent = cls.load(checkpoint, continue_env=True, trust=trust, **changed)
    name_class(agent, config.agent)
    return agent


def _check_options(config: TrainConfig | SftConfig, begun: Mapping[str, Any]) -> None:
    """Refuse options that cannot change, and a server or an unsandboxed run that only config.json names."""
    for name in ("log_dir", "overwrite", "task"):
        if name in config.typed:
            raise ValueError(
                f"{config.flag(name)} has no meaning with --resume, which continues its own run in its folder"
            )
    for name, value in config.flat().items():
        if name in config.typed and name not in CHANGEABLE and value != begun.get(name):
            flag, allowed = config.flag(name), ", ".join(map(config.flag, CHANGEABLE))
            raise ValueError(
                f"{flag} {value} is not what the run began with ({begun.get(name, f'no {flag}')}); "
                f"with --resume these may change: {allowed}"
            )
    if config.unsafe_local_exec and "unsafe_local_exec" not in config.typed:
        raise ValueError(f"'{config.resume}/{CONFIG}' lifts the sandbox; if you agree, pass --unsafe-local-exec")
    values = vars(config) | config.settings
    for name in ("engine_url", "engine_kwargs"):
        if (value := values.get(name)) and name not in config.typed and not config.trust:
            flag, file = config.flag(name), f"{config.resume}/{CONFIG}"
            raise ValueError(f"{file!r} names {flag} {value}; if you trust it, pass --trust or {flag} itself")
