"""Checkpoints: a folder without pickles, written whole or not at all (see files.py); nothing in it is executed.

agent.json            the agent's class, its settings, its environment if that has an id, the counters
policy/               the policy; a language model under policy/model, for AutoModelForCausalLM, or its adapter for peft
reference/            the frozen reference, if the KL anchor has one; without the base that it shares with the policy
training.json         optimizer, random generators, the environment's place in its stream, the algorithm's own state;
training.safetensors  its tensors
manifest.json         the SHA-256 of every file, by which a damaged checkpoint is noticed
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints
from zipfile import is_zipfile

import numpy as np
import torch
from gymnasium import spaces
from safetensors import SafetensorError
from safetensors.torch import load_file

from rlenv._json import read_table

from ..files import check_seal, whole_folder
from ..policies import KINDS, SavedPolicy
from .state import Counters

T = TypeVar("T")
Version = tuple[Path, int, int]  # of a folder: where it is, its number on the disk, and when it came there
MOST_STEPS = 2**53  # that a counter may have: floats, and the files of TensorBoard, hold them exactly
FORMAT = 7  # of the folder; a checkpoint of another format is not read
AGENT, POLICY, REFERENCE, TRAINING = "agent.json", "policy", "reference", "training"
_PICKLES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"}


class Facts(Counters):
    """The contents of agent.json.

    Attributes:
        format: `FORMAT` of the version of rlenv that wrote it.
        version: of rlenv.
        agent: name of the class; None for a class of the user's own.
        policy_kind: `Policy.kind`.
        settings: arguments of the constructor.
        env: id of the environment; None if it was an object.
        env_kwargs: for the environment's constructor.
        spaces: of one environment; see `space_of`.
        functions: names of the settings that were functions.
    """

    format: int
    version: str
    agent: str | None
    policy_kind: str
    settings: dict[str, Any]
    env: str | None
    env_kwargs: dict[str, Any] | None
    spaces: dict[str, Any]
    functions: list[str]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder that was found whole.

    Attributes:
        path: the folder.
        facts: what agent.json says.
        policy: read once the spaces are known.
        reference: the folder of the frozen reference of the KL anchor; None if it had none.
        version: of the folder, when it was found whole; another one is there after a save.
    """

    path: Path
    facts: Facts
    policy: SavedPolicy
    reference: Path | None
    version: Version | None = None

    def training(self, copied: bool = True) -> dict[str, Any]:
        """Return the state of the training, on the CPU: there torch's Adam keeps its counts of steps.

        Args:
            copied: see `read_state`.
        """
        return read_state(self.path / TRAINING, copied)


def read_checkpoint(path: Path) -> Checkpoint:
    """Find a checkpoint.

    Raises:
        ValueError: if there is none, it is damaged, or another version wrote it.
    """
    path, version = whole_folder(folder_of(path)), _version(path)
    if not (path / AGENT).is_file():
        if is_zipfile(theirs := path.with_name(f"{path.name}.zip")):
            raise ValueError(
                f"{str(theirs)!r} is of stable-baselines3, which cannot be continued here: use it there, or train anew "
                "(docs/stable-baselines3.md)"
            )
        inside = path / "checkpoint"  # of a run folder
        hint = f"; load {str(inside)!r}" if (inside / AGENT).is_file() else ""
        raise ValueError(f"{str(path)!r} is not a checkpoint: it has no {AGENT}{hint}")
    facts = read_facts(path)
    for file in path.rglob("*"):
        if file.suffix in _PICKLES:
            raise ValueError(f"{str(file)!r} may be a pickle, which can run code; no checkpoint has such files")
    check_seal(path)
    reference = path / REFERENCE if (path / REFERENCE).is_dir() else None
    return Checkpoint(path, facts, SavedPolicy(facts["policy_kind"], path / POLICY), reference, version)


def while_unchanged(given: str | Path | Checkpoint, read: Callable[[Checkpoint], T]) -> T:
    """Return `read` of a checkpoint; both are repeated if another process replaces the folder meanwhile.

    Args:
        given: its path, or the result of `read_checkpoint`, whose files are not hashed again.
        read: called with the checkpoint.
    """
    path = given.path if isinstance(given, Checkpoint) else Path(given)
    while True:
        began = _version(path)
        try:
            if isinstance(given, Checkpoint) and given.version == began:
                return read(given)
            return read(read_checkpoint(path))
        except (OSError, ValueError):
            if _version(path) == began:
                raise


def _version(path: Path) -> Version | None:
    folder = whole_folder(folder_of(path))
    with suppress(OSError):
        about = folder.stat()
        return folder, about.st_ino, about.st_ctime_ns
    return None


def read_facts(path: Path) -> Facts:
    """Return the contents of agent.json.

    Raises:
        ValueError: if it cannot be read, another version wrote it, or it says what no agent has written.
    """
    file = str(path / AGENT)
    facts: Any = read_table(path / AGENT)
    if type(facts.get("format")) is not int or facts["format"] != FORMAT:
        raise ValueError(
            f"{str(path)!r} was written by version {facts.get('version', '?')!r:.40} of rlenv "
            f"(format {facts.get('format')!r:.40}); this is {version_of_rlenv()} (format {FORMAT}): "
            "load it with the version that wrote it, or train anew"
        )
    if wrong := misfit(facts, Facts):
        raise ValueError(f"{file!r} is damaged: its {wrong}")
    if facts["env"] is not None and facts["env_kwargs"] is None:
        raise ValueError(f"{file!r} is damaged: its env_kwargs are missing")
    if facts["policy_kind"] not in KINDS:
        raise ValueError(
            f"{file!r} names the unknown kind of policy {facts['policy_kind']!r:.80}; "
            "import the module first that puts it into rlenv.agents.policies.KINDS"
        )
    return cast(Facts, facts)


def misfit(table: Mapping[str, Any], declared: type) -> str:
    """Return which value in a table is not of its type, such as "seconds is -1"; empty if all fit.

    Numbers are from 0 to `MOST_STEPS`.

    Args:
        table: to be checked.
        declared: a TypedDict of plain types; the items of its containers are not checked.
    """
    for name, kind in get_type_hints(declared).items():
        if name not in table:
            if name in declared.__optional_keys__:  # type: ignore[attr-defined]
                continue
            return f"{name} is missing"
        value = table[name]
        kinds = tuple(get_origin(each) or each for each in (get_args(kind) if isinstance(kind, UnionType) else [kind]))
        if not isinstance(value, kinds) or (isinstance(value, (int, float)) and not 0 <= value <= MOST_STEPS):
            return f"{name} is {value!r:.80}"
    return ""


def version_of_rlenv() -> str:
    """Return the installed version of rlenv, whose package this one does not import."""
    try:
        return metadata.version("rlenv-lm")
    except metadata.PackageNotFoundError:  # a source tree that is not installed
        return "unknown"


def folder_of(path: Path) -> Path:
    """Return the folder that a path stands for; stable-baselines3's have a suffix."""
    return path.with_suffix("") if path.suffix == ".zip" else path


# The state of the training: plain values on one side, tensors on the other.


def read_state(path: Path, copied: bool = True) -> dict[str, Any]:
    """Return the state of a training that `saving.py` wrote, with its tensors on the CPU.

    Args:
        path: without a suffix.
        copied: False leaves the tensors in the file, which processes then share, for readers that copy their part.

    Raises:
        ValueError: if a file is missing or damaged.
    """
    try:
        structure = read_table(path.with_suffix(".json"))
        tensors = load_file(path.with_suffix(".safetensors"))
        if copied:
            tensors = {name: tensor.clone() for name, tensor in tensors.items()}  # aligned: rounding depends on it
        return dict(_unpacked(structure, tensors))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise ValueError(f"the state in {str(path)!r} cannot be read: {error}") from error


def _unpacked(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "array":
        return tensors[content].numpy()
    if kind == "dict":
        return {key: _unpacked(item, tensors) for key, item in content}
    if kind not in ("list", "tuple"):
        raise ValueError(f"{kind!r:.80} is not a kind of value")
    items = [_unpacked(item, tensors) for item in content]
    return tuple(items) if kind == "tuple" else items


# Spaces: Gymnasium writes samples of them as JSON, not spaces; stable-baselines3 pickles them, which executes code.

MOST = 2**24  # numbers in an observation or action, or choices; a checkpoint may name any
ARGUMENTS: dict[type[spaces.Space], tuple[str, ...]] = {  # of the constructor, and attributes
    spaces.Box: ("low", "high", "shape", "dtype"),
    spaces.Discrete: ("n", "start"),
    spaces.MultiDiscrete: ("nvec", "start"),
    spaces.MultiBinary: ("n",),
}
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in ARGUMENTS}


def space_of(saved: Any) -> spaces.Space:
    """Return the space that `saving.described` returned the values of.

    Raises:
        ValueError: for anything else.
    """
    try:
        if saved["kind"] == "Dict":
            return spaces.Dict({name: space_of(part) for name, part in saved["spaces"].items()})
        kind = _KINDS[saved["kind"]]
        given = {name: saved[name] for name in ARGUMENTS[kind]}
        if math.prod(np.ravel(given.get("shape", given.get("n", 1))).tolist()) > MOST:
            raise ValueError(f"it has more than {MOST} numbers")
        if kind is spaces.Box:
            given["shape"], dtype = tuple(given["shape"]), np.dtype(given["dtype"])
            if dtype.kind not in "fiub":
                raise ValueError(f"its dtype is {dtype}")
            ends = {end: np.full(given["shape"], given[end], dtype) for end in ("low", "high")}
            given |= ends | {"dtype": dtype.type}
        return kind(**given)
    except (
        ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
    ) as error:  # fmt: skip
        raise ValueError(f"the space {saved!r:.80} in the checkpoint cannot be read: {error!s:.80}") from error
