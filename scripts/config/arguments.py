"""From the options of a command to the arguments of the agent, its policy and its environment."""

from __future__ import annotations

import inspect
import json
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

from rlenv.agents import Agent, peer_names
from rlenv.agents.checks import check_choice
from rlenv.agents.language.adapters import has_adapter, library
from rlenv.agents.policies import tokenizer_of
from rlenv.agents.rollouts.envs import find_spec
from rlenv.chat import read_template
from rlenv.task import TextGenTask

from ..run.folder import LOCAL, config_of, model_of
from .defaults import NOT_SETTINGS, as_option, by_agent
from .options import TEXT_ONLY, adapter, problem_file_arguments
from .parameters import flag_of, typed

IN_TURN = {"first_problem": 0, "curriculum": None, "prompt_choice": None}  # of TextGen-v0: all, from the first
POLICY_OPTIONS = ("temperature", "dtype", "activation_checkpointing", *adapter.names)  # of language models


def is_text(env_id: str) -> bool:
    """Tell whether this id names the text environment.

    Raises:
        ValueError: for an unknown id, with the closest match.
    """
    return find_spec(env_id).name == "TextGen"


def resolved(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the running command as `--config` reads them."""
    return {
        name: dict(value) if name.endswith("_args") else value
        for name, value in given.items()
        if name not in LOCAL and value not in (None, ())
    }


def agent_arguments(name: str, cls: type[Agent], options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings among the options that were given, for the constructor of an agent.

    Raises:
        ValueError: for a setting that the agent does not take, or an --agent-arg that has an option.
    """
    accepted = inspect.signature(cls).parameters.keys() - {"policy", "env", *NOT_SETTINGS}
    known = accepted | by_agent().keys()
    given = {key: value for key, value in options.items() if key in known and value is not None}
    if strange := next((key for key in given if key not in accepted), None):
        raise ValueError(f"agent {name!r} takes no --{strange.replace('_', '-')}")
    more = dict(options.get("agent_args", ()))
    _check_free("--agent-arg", more, options)
    for key, value in more.items():
        if key in peer_names.KNOWN - accepted - {"policy", "env", *NOT_SETTINGS}:
            of_agent = accepted | {peer_names.POLICY}
            shown = value if isinstance(value, str) else json.dumps(value)
            said = peer_names.advice({key: shown}, of_agent, partial(as_option, options))
            raise ValueError(f"agent {name!r} has no setting {key!r}; {said}")
        check_choice(f"--agent-arg of {name!r}", key, sorted(accepted - options.keys()))
    return given | more


def _check_free(flag: str, given: dict[str, Any], options: Collection[str]) -> None:
    """Refuse what has an option of its own."""
    for name in given:
        if name in options:
            raise ValueError(f"{flag} {name}: there is an option for it, --{name.replace('_', '-')}")


def policy_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments for the policy's constructor.

    Raises:
        ValueError: for a --policy-arg that has an option, or an adapter without peft.
    """
    given = dict(options.get("policy_args", ()))
    if not is_text(options["env_id"]):
        return given
    _check_free("--policy-arg", given, POLICY_OPTIONS)
    if options.get("lora_rank") is not None or has_adapter(model_of(options["model"])):
        library()
    values = {name: options.get(name) for name in POLICY_OPTIONS}
    return {name: value for name, value in values.items() if value is not None and value is not False} | given


def env_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments for the environment's constructor.

    Raises:
        ValueError: for an option of the text environment with another one, or an --env-arg that has an option.
    """
    given = dict(options["env_args"])
    if not is_text(options["env_id"]):
        for name in TEXT_ONLY:
            if typed(name):
                raise ValueError(f"{flag_of(name)} has no meaning for {options['env_id']}")
        return given
    for name in ("verifier", "verifier_kwargs", "problems", "split", "group_size"):
        if name in given:
            raise ValueError(f"--env-arg {name}=... has no meaning here; see --help for the option that sets it")
    unsafe = {"unsafe_local_exec": True} if options.get("unsafe_local_exec") else {}
    template = options.get("chat_template")
    runs = (options, config_of(options["model"]))  # training begins behind the warm start's problems
    demonstrated = next((run["sft_examples"] for run in runs if run.get("sft_steps")), None)
    settings = {
        **{name: options.get(name) for name in inspect.signature(TextGenTask).parameters if name != "group_size"},
        **problem_file_arguments(options),
        "chat_template": None if template is None else read_template(Path(template)),  # the checkpoint keeps the text
        "tokenizer": _tokenizer(options),
        "first_problem": given.get("first_problem", demonstrated),
    }
    task = {"verifier": options["verifier"], "verifier_kwargs": dict(options["verifier_args"]) | unsafe}
    return given | task | {name: value for name, value in settings.items() if value not in (None, ())}


def _tokenizer(options: dict[str, Any]) -> str | None:
    """Return the tokenizer that was asked for, else the model's.

    Raises:
        ValueError: if one is to be trained for a model that has one.
    """
    asked, own = options["tokenizer"], tokenizer_of(model_of(options["model"]))
    if asked is None or own is None or not asked.startswith("train:"):
        return asked or own
    if config_of(options["model"]).get("tokenizer") != asked:
        model = options["model"]
        raise ValueError(f"--tokenizer {asked} is for presets, but {model!r} has a tokenizer; omit --tokenizer")
    return own
