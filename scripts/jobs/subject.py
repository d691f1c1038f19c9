"""What is evaluated or played with: the policy of a checkpoint, or a language model of a folder or id."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rlenv.agents import make_envs, make_policy
from rlenv.agents.files import MANIFEST
from rlenv.agents.language.loading import find_config
from rlenv.agents.policies import check_name
from rlenv.agents.rollouts.envs import named_by_checkpoint, resolve_device, with_tokenizer
from rlenv.agents.training.checkpoint import Checkpoint
from rlenv.hub import allow, is_allowed
from rlenv.rows import digest_of
from rlenv.tasks import expanded

from ..config import arguments
from ..config.names import class_saved
from ..config.options import problem_file_arguments
from ..config.parameters import given_by_user
from ..run.folder import MODEL, NotARunError, checkpoint_of

FOLDER = "evaluations"
TEXT_ENV = "TextGen-v0"


class Loaded(NamedTuple):
    """A policy, its device, and an environment of its kind."""

    policy: Any
    device: torch.device
    env: Any


@dataclass(frozen=True)
class Subject:
    """A policy that has not been loaded yet.

    Args:
        spec: what the user typed.
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
        return Path(FOLDER) if self.saved is None else self.path.parent / FOLDER

    def load(self, given: Mapping[str, Any]) -> Loaded:
        """Return the policy; see `find` about errors."""
        if self.saved is not None:
            cls: Any = class_saved(self.saved.facts["agent"], given["trust"])
            trust = bool(self.env_kwargs.get("trust", given["trust"]))
            agent = cls.load(self.saved, device=given["device"], env_kwargs=self.env_kwargs, trust=trust)
            return Loaded(agent.policy, agent.device, agent.env)
        device = resolve_device(given["device"], self.env_id)
        env_kwargs = with_tokenizer(self.env_id, self.env_kwargs, self.spec)
        envs = make_envs(self.env_id, 1, env_kwargs, device=str(device))
        spaces = (envs.single_observation_space, envs.single_action_space)
        policy = make_policy(self.spec, *spaces, **policy_arguments(given))
        return Loaded(policy.to(device), device, envs)


def find(spec: Path, given: Mapping[str, Any]) -> Subject:
    """Return the policy and problems of a folder or id; the options that the user gave replace those of a checkpoint.

    Raises:
        ValueError: if it is neither a run, nor a checkpoint, nor a model, or the options do not fit it.
    """
    try:
        saved = checkpoint_of(spec)
    except NotARunError as error:
        if given_by_user("verifier"):
            return _model(spec, given)
        how = "to evaluate a model folder or id, say what judges it: --verifier NAME or --task NAME"
        raise ValueError(f"{error}; {how}") from error
    for name, flag in (("policy_args", "--policy-arg"), ("dtype", "--dtype")):
        if given_by_user(name):
            raise ValueError(f"{flag} is for a model folder or id; a checkpoint has its own arguments")
    return _of_checkpoint(str(spec), saved, given)


def policy_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the policy around a model folder or id."""
    return ({} if given["dtype"] is None else {"dtype": given["dtype"]}) | dict(given["policy_args"])


def _of_checkpoint(spec: str, saved: Checkpoint, given: Mapping[str, Any]) -> Subject:
    env_id, kept = saved.facts["env"], saved.facts["env_kwargs"] or {}
    if env_id is None:
        raise ValueError(f"{str(saved.path)!r} does not name its environment: it was trained on an object")
    named_by_checkpoint(env_id, {}, given["trust"])
    if arguments.is_text(env_id):
        kept = expanded(**kept)
    own_tools = given_by_user("tools") or not kept.get("tools")
    own_data = given_by_user("problems") or is_allowed(kept.get("problems"))
    own = given_by_user("verifier") and own_tools and own_data  # nothing that the checkpoint names runs or is loaded
    env_kwargs = named_by_checkpoint(env_id, kept, given["trust"] or own)
    if arguments.is_text(env_id):
        model = saved.path / MODEL
        if (model / "tokenizer_config.json").is_file():
            env_kwargs["tokenizer"] = str(model)  # the folder of the run may have moved
        env_kwargs |= _replaced(given) | {"split": given["split"]}  # the training split may be empty
        env_kwargs |= whole_file(given["split"], env_kwargs.get("problems"), kept.get("problems"))
    else:
        arguments.env_arguments({**given, "env_id": env_id, "env_args": ()})  # refuses options of text
    return Subject(spec, saved, env_id, env_kwargs)


def whole_file(split: str, asked: Any, trained: Any = None) -> dict[str, Any]:
    """Return how to ask all of a file that the user named, if the training, if any, was not on that file."""
    if not given_by_user("problems") or given_by_user("test_fraction"):
        return {}
    both = all(isinstance(each, (str, Path)) and Path(each).exists() for each in (trained, asked))
    unseen = trained is None or (both and digest_of(Path(trained)) != digest_of(Path(asked)))
    return {"test_fraction": float(split == "test")} if unseen else {}


def _replaced(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment's arguments that options replace."""
    options = {**given, "env_id": TEXT_ENV, "env_args": (), "model": "auto"}
    asked = arguments.env_arguments(options)
    names = {"verifier_kwargs": ("verifier", "verifier_args", "unsafe_local_exec")}
    kept = {name: value for name, value in asked.items() if any(map(given_by_user, names.get(name, (name,))))}
    if given_by_user("problems"):
        allow(options["problems"])
        kept |= problem_file_arguments(options)
    return kept


def _model(spec: Path, given: Mapping[str, Any]) -> Subject:
    name = str(spec) if spec.exists() else spec.as_posix()  # an id has slashes on every system
    check_name(name)
    find_config(name)
    options = {**given, "env_id": TEXT_ENV, "env_args": (), "model": name, "trust": None}  # the user named it
    env_kwargs = arguments.env_arguments(options) | {"split": given["split"]}
    return Subject(name, None, TEXT_ENV, env_kwargs | whole_file(given["split"], env_kwargs.get("problems")))


def content_of(folder: Path) -> str | None:
    """Return a digest of a checkpoint, which changes with its weights; None for any other folder."""
    manifest = folder / MANIFEST
    return hashlib.blake2b(manifest.read_bytes(), digest_size=8).hexdigest() if manifest.is_file() else None
