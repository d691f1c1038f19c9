"""The subject of an evaluation or a game: the policy of a checkpoint, or a language model of a folder or id."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rlenv._settings import declared_by
from rlenv.agents import make_envs, make_policy
from rlenv.agents.language.loading import find_config
from rlenv.agents.language.policy_folder import saved_setting
from rlenv.agents.language.vocabulary import with_tokenizer
from rlenv.agents.policies import check_name
from rlenv.agents.rollouts.envs import resolve_device, takes_tokenizer
from rlenv.agents.training.checkpoint import Checkpoint
from rlenv.agents.training.loading import named_by_checkpoint
from rlenv.forms import ProblemFile
from rlenv.hub import allow, is_allowed
from rlenv.rows import digest_of
from rlenv.task import expanded

from ..config import arguments
from ..config.base import read_table
from ..config.configs import TrainConfig
from ..config.names import OBJECTS, class_saved, objects_in
from ..config.options import is_text
from ..config.other_configs import EvaluateConfig, PlayConfig
from ..run.folder import CONFIG, EVALUATIONS, MODEL, NotARunError, RunFolder, checkpoint_of

TEXT_ENV = "TextGen-v0"
OF_ENVIRONMENT = {*OBJECTS} - {"agent"}
Watched = EvaluateConfig | PlayConfig


@dataclass(frozen=True)
class Subject:
    """A policy that has not been loaded yet.

    Args:
        spec: the user's argument.
        saved: the checkpoint, found whole; None for a model.
        env_id: of the environment.
        env_kwargs: its arguments.
    """

    spec: str
    saved: Checkpoint | None
    env_id: str
    env_kwargs: dict[str, Any]

    @property
    def path(self) -> Path:
        """The folder of the checkpoint or model; of a model id, no folder."""
        return Path(self.spec) if self.saved is None else self.saved.path

    @property
    def home(self) -> Path:
        """The folder of its evaluations."""
        return Path(EVALUATIONS) if self.saved is None else self.path.parent / EVALUATIONS

    def model_args(self, config: Watched) -> dict[str, Any]:
        """Return the arguments of the policy around a model folder or id; a checkpoint has its own."""
        if self.saved is not None:
            return {}
        return ({} if config.dtype is None else {"dtype": config.dtype}) | dict(config.policy_kwargs)

    def load(self, config: Watched) -> tuple[Any, torch.device, Any]:
        """Return the policy, its device and an environment of its kind; see `find` about errors."""
        if self.saved is not None:
            cls: Any = class_saved(self.saved.facts["agent"], config.trust)
            trust = bool(self.env_kwargs.get("trust", config.trust))
            named_there = {} if self.saved.facts["env"] else {"env": self.env_id}
            agent = cls.load(self.saved, device=config.device, env_kwargs=self.env_kwargs, trust=trust, **named_there)
            return agent.policy, agent.device, agent.env
        device = resolve_device(config.device, self.env_id)
        is_text, own = takes_tokenizer(self.env_id), self.env_kwargs
        env_kwargs = with_tokenizer(own, self.spec) if is_text else own
        envs = make_envs(self.env_id, 1, env_kwargs, device=str(device))
        spaces = (envs.single_observation_space, envs.single_action_space)
        policy = make_policy(self.spec, *spaces, **self.model_args(config))
        return policy.to(device), device, envs


def find(spec: Path, config: Watched) -> Subject:
    """Return the policy and problems of a folder or id; the user's options replace the checkpoint's.

    Raises:
        ValueError: if it is neither a run, nor a checkpoint, nor a model, or the options do not fit it.
    """
    try:
        saved = checkpoint_of(spec)
    except NotARunError as error:
        if "verifier" in config.chosen:
            return _model(spec, config)
        how = "to evaluate a model folder or id, say what judges it: --verifier NAME or --task NAME"
        raise ValueError(f"{error}; {how}") from error
    if "policy_kwargs" in config.chosen:
        raise ValueError("--policy-arg is for a model folder or id; a checkpoint has its own arguments")
    return _of_checkpoint(str(spec), saved, config)


def _of_checkpoint(spec: str, saved: Checkpoint, config: Watched) -> Subject:
    env_id, kept = saved.facts["env"], saved.facts["env_kwargs"] or {}
    if env_id is None:
        env_id, kept = _with_objects(saved, config)
    named_by_checkpoint(env_id, {}, config.trust)
    if not is_text(env_id):
        arguments.env_arguments(config, env_id, {})  # refuses options of text
        return Subject(spec, saved, env_id, named_by_checkpoint(env_id, kept, config.trust))
    kept = expanded(**kept)
    own_tools = "tools" in config.chosen or not kept.get("tools")
    own_data = "problems" in config.chosen or is_allowed(kept.get("problems"))
    own = "verifier" in config.chosen and own_tools and own_data  # nothing that the checkpoint names runs or is loaded
    env_kwargs = named_by_checkpoint(env_id, kept, config.trust or own)
    if config.dtype not in (None, own_dtype := saved_setting(saved.policy.folder, "dtype")):
        raise ValueError(
            f"--dtype {config.dtype}: the weights of {spec!r} are {own_dtype}; omit it, or evaluate the model that "
            "`rlenv export` makes of them"
        )
    model = saved.path / MODEL
    if (model / "tokenizer_config.json").is_file():
        env_kwargs["tokenizer"] = str(model)  # the folder of the run may have moved
    env_kwargs |= _replaced(config) | {"split": config.split}  # the training split may be empty
    env_kwargs |= whole_file(config, env_kwargs.get("problems"), kept.get("problems"))
    return Subject(spec, saved, env_id, env_kwargs)


def _with_objects(saved: Checkpoint, config: Watched) -> tuple[str, dict[str, Any]]:
    """Return the environment of a run with objects of Python and its arguments, with these objects passed again.

    Raises:
        ValueError: if one of them is not passed, or the checkpoint is not of a run.
    """
    run, where = RunFolder(saved.path.parent), str(saved.path)
    begun = run.config if (run.path / CONFIG).is_file() else {}
    every = objects_in(begun)
    objects = {name: how for name, (_, how) in every.items() if name in OF_ENVIRONMENT}
    passed = {name: getattr(config, name) for name in objects.keys() & config.chosen}
    if not objects or len(passed) < len(objects):
        again = f"EvaluateConfig(runs={str(run.path)!r}, {', '.join(objects.values())})"
        how = f"pass it again, with {again}" if objects else f"use Agent.load({where!r}).evaluate(env, 100)"
        raise ValueError(
            f"{where!r} does not name its environment: it was trained on an object; in Python, {how}; or make a folder "
            "of its language model with `rlenv export`, and pass that with --verifier"
        )
    named_options = {name: value for name, value in begun.items() if name not in every}
    trained = TrainConfig(**read_table(TrainConfig, named_options, str(run.path / CONFIG)) | passed)
    return trained.env_id, arguments.env_arguments(trained, trained.env_id, trained.env_kwargs, trained.model)


def whole_file(config: Watched, problems: Any, trained: Any = None) -> dict[str, Any]:
    """Return how to ask all of a file that the user named, if the training, if any, was not on that file."""
    if "problems" not in config.chosen or "test_fraction" in config.chosen:
        return {}
    both = all(isinstance(each, (str, Path)) and Path(each).exists() for each in (trained, problems))
    unseen = trained is None or (both and digest_of(Path(trained)) != digest_of(Path(problems)))
    return {"test_fraction": float(config.split == "test")} if unseen else {}


def _replaced(config: Watched) -> dict[str, Any]:
    """Return the environment's arguments that options replace."""
    explicit = {name: getattr(config, name) for name in arguments.OF_TEXT if name in config.chosen}  # also a default
    chosen = explicit | arguments.env_arguments(config, TEXT_ENV, {})
    names = {"verifier_kwargs": ("verifier", "verifier_kwargs", "unsafe_local_exec")}
    kept = {name: value for name, value in chosen.items() if config.chosen & {*names.get(name, (name,))}}
    if "problems" in config.chosen:
        allow(config.problems)
        kept |= {name: getattr(config, name) for name in declared_by(ProblemFile)}
    return kept


def _model(spec: Path, config: Watched) -> Subject:
    name = str(spec) if spec.exists() else spec.as_posix()  # an id has slashes on every system
    check_name(name)
    find_config(name)
    env_kwargs = arguments.env_arguments(config, TEXT_ENV, {}, name) | {"split": config.split}
    return Subject(name, None, TEXT_ENV, env_kwargs | whole_file(config, env_kwargs.get("problems")))
