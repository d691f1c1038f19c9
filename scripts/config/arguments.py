"""From the config of a job to its agent: the arguments of the agent, its policy and its environment."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlenv._checks import check_choice
from rlenv._peer_names import name_here
from rlenv._settings import declared_by
from rlenv.agents import Agent
from rlenv.agents.language.adapters import library
from rlenv.agents.language.loading import has_adapter, model_folder
from rlenv.agents.policies import NAMES, tokenizer_of
from rlenv.chat import read_template
from rlenv.forms import OWNERS

from ..process.progress import say
from ..run.folder import model_of, options_behind
from .base import Config, check_free, named, options_of
from .defaults import NOT_SETTINGS, by_agent
from .names import agent_class
from .options import ADAPTER, TEXT_ONLY, Text, Training, is_text

IN_TURN = {"first_problem": 0, "curriculum": None, "prompt_choice": None}  # of TextGen-v0: all, from the first
POLICY_OPTIONS = ("temperature", "dtype", "activation_checkpointing", *ADAPTER)  # of language models
OF_TEXT = [name for name in OWNERS if name in declared_by(Training)]


def build_agent(name: str | type[Agent], config: Any) -> Agent:
    """Return the agent of this name, or class, that a config describes.

    Raises:
        ValueError: for an unknown agent, an option that it does not take, and as its constructor says.
    """
    cls, model = agent_class(name), model_of(config.model)
    arguments = {
        "policy_kwargs": policy_arguments(config),
        "env_kwargs": env_arguments(config, config.env_id, config.env_kwargs, config.model),
        "engine_kwargs": dict(getattr(config, "engine_kwargs", {})) or None,
        **agent_arguments(config, cls, named(name)),
    }
    if model not in NAMES and not Path(model_folder(model)).is_dir():
        say(f"loading {model}; the first time its files are downloaded")
    agent = cls(model, config.env_id, **arguments)
    name_class(agent, name)
    return agent


def name_class(agent: Agent, name: str | type[Agent]) -> None:
    """Have checkpoints name a class of the user's, so that the commands find it."""
    if ":" in named(name):
        agent.origin["agent"] = named(name)


def agent_arguments(config: Config, cls: type[Agent], name: str) -> dict[str, Any]:
    """Return the settings in a config, for the constructor of an agent.

    Args:
        config: with `settings`; the fields that are arguments of the agent, such as seed, are settings, too.
        cls: of the agent.
        name: of the agent, in errors.

    Raises:
        ValueError: for a setting that the agent does not take, or in --agent-arg, one that has an option.
    """
    accepted = inspect.signature(cls).parameters.keys() - {"policy", "env", *NOT_SETTINGS}
    options, settings = options_of(type(config)), getattr(config, "settings", {})
    of_agents = options.keys() & (accepted | by_agent().keys())
    values = vars(config) | settings
    chosen = {key: values[key] for key in options if key in of_agents and values.get(key) is not None}
    if strange := next((key for key in chosen if key not in accepted), None):
        raise ValueError(f"agent {name!r} takes no --{strange.replace('_', '-')}")
    more = {key: value for key, value in settings.items() if key not in options}
    for key in more:
        if key not in accepted and (renamed := name_here(key, options)):
            raise ValueError(f"agent {name!r} has no setting {key!r}; {renamed}")
        check_choice(f"setting of agent {name!r}", key, sorted(accepted))
    return chosen | more


def policy_arguments(config: Any) -> dict[str, Any]:
    """Return the arguments for the policy's constructor.

    Args:
        config: of a job that trains.

    Raises:
        ValueError: for a --policy-arg that has an option, or an adapter without peft.
    """
    arguments = dict(getattr(config, "policy_kwargs", {}))
    if not is_text(config.env_id):
        return arguments
    check_free("--policy-arg", arguments, {name: options_of(type(config))[name] for name in POLICY_OPTIONS})
    if config.lora_rank is not None or has_adapter(model_of(config.model)):
        library()
    values = {name: getattr(config, name) for name in POLICY_OPTIONS}
    return {name: value for name, value in values.items() if value is not None and value is not False} | arguments


def env_arguments(config: Text, env_id: str, env_kwargs: Mapping[str, Any], model: str = "auto") -> dict[str, Any]:
    """Return the arguments for the environment's constructor.

    Args:
        config: of the job.
        env_id: of the environment.
        env_kwargs: further arguments of it.
        model: its tokenizer is passed to the environment, which begins behind its warm start.

    Raises:
        ValueError: for an option of the text environment with another one, an --env-arg that has an option, or a
            tokenizer to be trained for a model that has one.
    """
    if not is_text(env_id):
        for name in TEXT_ONLY:
            if name in config.typed:
                raise ValueError(f"{config.flag(name)} has no meaning for {env_id}")
        return dict(env_kwargs)
    check_free("--env-arg", env_kwargs, options_of(type(config)))
    for name in ("split", "group_size"):
        if name in env_kwargs:
            raise ValueError(f"--env-arg {name}=... has no meaning here")
    unsafe = {"unsafe_local_exec": True} if config.unsafe_local_exec else {}
    own = {"sft_steps": getattr(config, "sft_steps", None), "sft_examples": getattr(config, "sft_examples", None)}
    before, of_model = options_behind(model), tokenizer_of(model_of(model))
    # Training begins behind the warm start's problems.
    demonstrated = next((run["sft_examples"] for run in (own, before) if run.get("sft_steps")), None)
    usual = {name: one.default for name, one in declared_by(type(config)).items() if name in OF_TEXT}
    values = {name: getattr(config, name) for name in usual}
    trains = str(config.tokenizer).startswith("train:")
    if trains and of_model is not None and before.get("tokenizer") != config.tokenizer:
        chosen = f"--tokenizer {config.tokenizer}"
        raise ValueError(f"{chosen} is for presets, but {model!r} has a tokenizer; omit --tokenizer")
    if trains or config.tokenizer is None:
        values["tokenizer"] = of_model or config.tokenizer
    if config.chat_template is not None:
        values["chat_template"] = read_template(config.chat_template)  # the checkpoint keeps the text
    values = {name: each for name, each in values.items() if not (_equal(each, usual[name]) or _equal(each, {}))}
    values |= {"verifier": config.verifier, "verifier_kwargs": config.verifier_kwargs | unsafe}
    return ({} if demonstrated is None else {"first_problem": demonstrated}) | values | dict(env_kwargs)


def _equal(value: Any, other: Any) -> bool:
    """Tell whether two values are equal; of another type, such as a table of pandas, == may compare its cells."""
    return type(value) is type(other) and bool(value == other)
