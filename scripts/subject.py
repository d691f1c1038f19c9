"""What is evaluated: the policy of a checkpoint, or a language model of a folder or id."""

from __future__ import annotations

import filecmp
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from agents import make_envs, make_policy
from agents.files import MANIFEST, whole_folder
from agents.language.loading import find_config
from agents.policies import check_name
from agents.rollouts.envs import LOOP_OFFERS, named_by_checkpoint, resolve_device, with_tokenizer
from agents.training.checkpoint import Checkpoint
from rlenv.task import TextGenTask

from . import session, settings
from .agent_names import class_saved
from .parameters import given_by_user
from .run import NotARunError, Run, checkpoint_of

FOLDER = "evaluations"
TEXT_ENV = "TextGen-v0"


@dataclass(frozen=True)
class Subject:
    """A policy that has not been loaded yet, and where its evaluations go.

    Args:
        spec: what the user typed.
        saved: the checkpoint, found whole; None for a model.
        label: the beginning of file names.
        env_id: of the environment.
        env_kwargs: its arguments.
        home: the folder of its evaluations.
    """

    spec: str
    saved: Checkpoint | None
    label: str
    env_id: str
    env_kwargs: dict[str, Any]
    home: Path

    @property
    def checkpoint(self) -> Path | None:
        """The folder of the checkpoint, if it is one."""
        return None if self.saved is None else self.saved.path

    @property
    def text(self) -> bool:
        """Whether it acts in the text environment."""
        return settings.is_text(self.env_id)

    @property
    def content(self) -> str:
        """A digest that changes with the weights, as far as that can be seen without reading them."""
        return content_of(self.checkpoint or Path(self.spec)) or self.spec

    @property
    def problems(self) -> Any:
        """What the problems depend on: the environment's arguments, and a digest of the file, if any."""
        own = "" if self.checkpoint is None else str(self.checkpoint)
        kwargs = {
            name: value
            for name, value in self.env_kwargs.items()
            if name != "trust" and not (name == "tokenizer" and own and str(value).startswith(own))
        }
        file = kwargs.get("problems")
        return {**kwargs, "problems_file": _listing(Path(file)) if isinstance(file, str) else None}

    def load(self, given: Mapping[str, Any]) -> Loaded:
        """Return the policy; see `find` about errors."""
        if self.saved is not None:
            changes = {"device": given["device"], "env_kwargs": self.env_kwargs}
            changes["trust"] = bool(self.env_kwargs.get("trust", given["trust"]))
            agent: Any = class_saved(self.saved.facts["agent"], given["trust"]).load(self.saved, **changes)
            return Loaded(agent.policy, agent.device, agent.env, agent)
        device = resolve_device(given["device"], self.env_id)
        env_kwargs = with_tokenizer(self.env_id, self.env_kwargs, self.spec)
        envs = make_envs(self.env_id, 1, env_kwargs, device=str(device))
        spaces = (envs.single_observation_space, envs.single_action_space)
        policy = make_policy(self.spec, *spaces, **policy_arguments(given))
        return Loaded(policy.to(device), device, envs, None)

    def envs(self, loaded: Loaded, slots: int, samples: int) -> Any:
        """Return environments that pose the problems from the first one on, each so many times, at all levels."""
        changes = {**settings.IN_TURN, "group_size": samples, "tokenizer": loaded.task.tokenizer}
        return make_envs(self.env_id, slots, self.env_kwargs | changes, device=str(loaded.device), **LOOP_OFFERS)


@dataclass(frozen=True)
class Loaded:
    """A policy, its device, an environment of its kind, and the agent that it was loaded with, if any."""

    policy: Any
    device: torch.device
    env: Any
    agent: Any

    @property
    def task(self) -> TextGenTask:
        """The task of the text environment."""
        return session.task_of(self.env)


def find(spec: Path, given: Mapping[str, Any]) -> Subject:
    """Return what a folder or id stands for; the options that the user gave replace those of a checkpoint.

    Raises:
        ValueError: if it is neither a run, nor a checkpoint, nor a model, or the options do not fit it.
    """
    folder = whole_folder(spec)
    is_run = (folder / "agent.json").is_file() or bool(Run(spec).checkpoints())
    if not is_run and given_by_user("verifier"):
        return _model(spec, given)
    try:
        found = checkpoint_of(spec)
    except NotARunError as error:
        raise ValueError(f"{error}; to evaluate a model folder or id, say what judges it: --verifier NAME") from error
    for name, flag in (("policy_args", "--policy-arg"), ("dtype", "--dtype")):
        if given_by_user(name):
            raise ValueError(f"{flag} is for a model folder or id; a checkpoint has its own arguments")
    return _of_checkpoint(spec, found, given)


def policy_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the policy around a model folder or id."""
    return ({} if given["dtype"] is None else {"dtype": given["dtype"]}) | dict(given["policy_args"])


def _of_checkpoint(spec: Path, found: Checkpoint, given: Mapping[str, Any]) -> Subject:
    saved, checkpoint = found.facts, found.path
    if saved["env"] is None:
        raise ValueError(f"{str(checkpoint)!r} does not name its environment: it was trained on an object")
    kept, own_verifier = saved["env_kwargs"] or {}, given_by_user("verifier")
    own = own_verifier and (given_by_user("tools") or not kept.get("tools"))  # nothing of the checkpoint is imported
    named_by_checkpoint(saved["env"], {}, given["trust"])
    env_kwargs = named_by_checkpoint(saved["env"], kept, given["trust"] or own)
    if settings.is_text(saved["env"]):
        if (checkpoint / "policy" / "model" / "tokenizer_config.json").is_file():
            env_kwargs["tokenizer"] = str(checkpoint / "policy" / "model")  # the folder of the run may have moved
        env_kwargs |= _replaced(given) | {"split": given["split"]}  # the training split may be empty
        env_kwargs |= _whole_file(given["split"], env_kwargs.get("problems"), kept.get("problems"))
    else:
        settings.env_arguments({**given, "env_id": saved["env"], "env_args": ()})  # refuses options of text
    label = checkpoint.name.lstrip(".")
    return Subject(str(spec), found, label, saved["env"], env_kwargs, checkpoint.parent / FOLDER)


def _whole_file(split: str, asked: Any, trained: Any = None) -> dict[str, Any]:
    """Return how to ask all of a file that the user named, if the training, if any, was not on that file."""
    if not given_by_user("problems") or given_by_user("test_fraction"):
        return {}
    both = all(isinstance(each, (str, Path)) and Path(each).is_file() for each in (trained, asked))
    unseen = trained is None or (both and not filecmp.cmp(trained, asked, shallow=False))
    return {"test_fraction": float(split == "test")} if unseen else {}


def _replaced(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment's arguments that options replace."""
    options = {**given, "env_id": TEXT_ENV, "env_args": (), "model": "auto"}
    asked = settings.env_arguments(options)
    names = {"verifier_kwargs": ("verifier", "verifier_args", "unsafe_local_exec")}
    kept = {name: value for name, value in asked.items() if any(map(given_by_user, names.get(name, (name,))))}
    if given_by_user("problems"):
        kept |= settings.problem_file_arguments(options)
    return kept


def _model(spec: Path, given: Mapping[str, Any]) -> Subject:
    name = str(spec) if spec.exists() else spec.as_posix()  # an id has slashes on every system
    check_name(name)
    find_config(name)
    options = {**given, "env_id": TEXT_ENV, "env_args": (), "model": name, "trust": None}  # the user named it
    env_kwargs = settings.env_arguments(options) | {"split": given["split"]}
    env_kwargs |= _whole_file(given["split"], env_kwargs.get("problems"))
    return Subject(name, None, spec.name, TEXT_ENV, env_kwargs, Path(FOLDER))


def content_of(folder: Path) -> str | None:
    """Return a digest of a checkpoint or of the files of a model; None for a model id."""
    manifest = folder / MANIFEST
    return _digest(manifest.read_bytes()) if manifest.is_file() else _listing(folder)


def _listing(path: Path) -> str | None:
    """Return a digest of the names, sizes and times of the files in a folder; of a file, the contents; None without."""
    if path.is_file():
        return _digest(path.read_bytes())
    if not path.is_dir():
        return None
    files = sorted(file for file in path.rglob("*") if file.is_file())
    facts = [(file.relative_to(path).as_posix(), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return _digest(repr(facts).encode())


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
