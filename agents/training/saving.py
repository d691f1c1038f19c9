"""An agent as a checkpoint folder; `checkpoint.py` lists and reads its files, `state.py` gathers the agent's state."""

from __future__ import annotations

import json
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from safetensors.torch import save_file

from rlenv._json import plain, read_table

from .. import processes
from ..errors import DivergedError
from ..files import MANIFEST, new_folder, seal
from ..fsdp import has_part
from ..policies import KINDS, Policy
from ..policies.base import weights_digest
from ..settings import kept_of
from .checkpoint import AGENT, ARGUMENTS, FORMAT, POLICY, REFERENCE, TRAINING, folder_of, version_of_rlenv
from .state import state_of


def save(agent: Any, path: Path, previous: Path | None) -> None:
    """Write a checkpoint folder; see `Agent.save`."""
    if agent.updating:
        raise RuntimeError(
            f"update {agent.num_updates + 1} did not end: its weights and its optimizer do not fit together; "
            f"{str(path)!r} is left as it is: load the last checkpoint, or continue with learn()"
        )
    processes.on_all(agent.anchor.check_reference)
    sharded = has_part(agent.policy)
    if processes.size() > 1 and not sharded:
        processes.check_equal(weights_digest(agent.policy), "policy", "they were updated differently", DivergedError)
    seen, acted = agent.env.single_observation_space, agent.env.single_action_space
    facts = {  # how the agent is made again, for agent.json
        "format": FORMAT,
        "version": version_of_rlenv(),
        "agent": vars(type(agent)).get("name"),  # None for a class of your own, which loads its checkpoints itself
        "policy_kind": agent.policy.kind,
        "spaces": {"observation": described(seen), "action": described(acted)},
        "functions": sorted(kept_of(agent).keys() - agent.settings.keys()),
        "settings": agent.settings,
        **agent.origin,
    }
    state = state_of(agent)
    facts |= state["moments"][processes.rank()]["counters"]
    agent.collector.warn_of_loss()
    kind, own = agent.policy.kind, type(agent.policy)
    if not sharded and (made := KINDS.get(kind, own)) is not own:
        warnings.warn(
            f"the checkpoint names the policy {kind!r}, of which load makes a {made.__name__}: give {own.__name__} a "
            "kind of its own, and put it into rlenv.agents.policies.KINDS",
            stacklevel=3,
        )
    policy, reference = agent.policy, None if agent.anchor.reference is agent.policy else agent.anchor.reference
    if sharded:
        from ..sharding import unsharded  # slow to import

        policy, reference, state = unsharded((policy, reference, state))
    processes.on_main(lambda: write(folder_of(path), facts, policy, reference, state, previous))


def write(
    path: Path,
    facts: dict[str, Any],
    policy: Policy,
    reference: Policy | None,
    training: dict[str, Any],
    previous: Path | None,
) -> None:
    """Write a checkpoint; an older one is only replaced by a complete one.

    Args:
        path: the folder.
        facts: for agent.json; an `env_kwargs` that JSON cannot hold is left out, together with `env`.
        policy: to be saved.
        reference: of the KL anchor, if any.
        training: plain values and tensors in dictionaries, whose keys are strings or integers, lists and tuples.
        previous: where to move the checkpoint that is replaced; None: it is deleted.

    Raises:
        ValueError: if the path holds anything but a checkpoint, or another process is writing it.
        DivergedError: if the policy's weights are not finite; nothing is written then.
        TypeError: for a setting that JSON cannot hold, or any other value in `training`, with its name.
    """
    if path.exists() and not _is_checkpoint(path) and (path.is_file() or any(path.iterdir())):
        raise ValueError(f"{str(path)!r} exists and is not a checkpoint; it is not replaced")
    for name, weight in policy.named_parameters():
        if not weight.isfinite().all():
            kept = f"; {str(path)!r} is left as it is" if path.exists() else ""
            raise DivergedError(f"the weights of {name} are not finite any more, so they are not saved{kept}")
    for name, value in facts["settings"].items():
        try:
            json.dumps(value, default=plain)
        except TypeError as error:
            raise TypeError(f"the setting {name} cannot be saved: {error}; declare it with saved=False") from error
    try:
        said = json.dumps(facts, default=plain, indent=2)
    except TypeError:  # the environment was made with objects, and has to be passed to load()
        said = json.dumps({**facts, "env": None, "env_kwargs": None}, indent=2)
    tensors: dict[str, torch.Tensor] = {}
    state = packed(training, tensors, TRAINING)
    with new_folder(path, previous) as folder:
        file = folder / TRAINING
        file.with_suffix(".json").write_text(json.dumps(state) + "\n", encoding="utf-8")
        save_file(tensors, file.with_suffix(".safetensors"))
        (folder / AGENT).write_text(said + "\n", encoding="utf-8")
        for name, part in ((POLICY, policy), (REFERENCE, reference)):
            if part is not None:
                (folder / name).mkdir()
                part.save(folder / name)
        seal(folder)


def _is_checkpoint(path: Path) -> bool:
    """Tell whether a folder is a checkpoint, perhaps a damaged one, of which only the manifest says that it was."""
    with suppress(ValueError, TypeError):
        return (path / AGENT).is_file() or AGENT in read_table(path / MANIFEST).get("sha256", ())
    return False


def packed(value: Any, tensors: dict[str, torch.Tensor], name: str) -> Any:
    """Return a value as JSON holds it: containers are tagged with their type, a tensor is the name of its entry."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (torch.Tensor, np.ndarray)):
        kind, entry = "tensor" if isinstance(value, torch.Tensor) else "array", str(len(tensors))
        try:  # always a copy: safetensors refuses tensors that share memory
            source = torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value
            copy = source.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        except TypeError as error:
            raise TypeError(f"{name} cannot be saved: {error}") from error
        tensors[entry] = copy
        return {kind: entry}
    if isinstance(value, dict) and all(isinstance(key, (str, int)) for key in value):
        return {"dict": [[key, packed(item, tensors, f"{name}/{key}")] for key, item in value.items()]}
    if type(value) in (list, tuple):
        return {type(value).__name__: [packed(item, tensors, f"{name}[{i}]") for i, item in enumerate(value)]}
    allowed = "numbers, strings, None, tensors, arrays, and lists, tuples and dictionaries (with names) of these"
    raise TypeError(f"{name} cannot be saved: it is a {type(value).__name__}; allowed: {allowed}")


def described(space: spaces.Space) -> dict[str, Any] | None:
    """Return a space of one environment in plain values; None if it is of another kind than `space_of` makes."""
    if isinstance(space, spaces.Dict):
        parts = {name: described(part) for name, part in space.spaces.items()}
        return None if None in parts.values() else {"kind": "Dict", "spaces": parts}
    names = ARGUMENTS.get(type(space))
    made = {name: _plain(getattr(space, name), type(space) is spaces.Box) for name in names or ()}
    return {"kind": type(space).__name__, **made} if names else None


def _plain(value: Any, shorten: bool) -> Any:
    """Return an argument in plain values; an array of equal numbers as one number, if `shorten`."""
    if isinstance(value, np.ndarray):
        return value.flat[0].item() if shorten and value.size and (value == value.flat[0]).all() else value.tolist()
    if isinstance(value, (tuple, list)):
        return list(value)
    return str(value) if isinstance(value, np.dtype) else int(value)
