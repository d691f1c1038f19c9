"""Nested state as JSON and safetensors: plain values on one side, tensors on the other; reading executes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rlenv._json import read_table


def write_state(state: Any, path: Path) -> None:
    """Write nested dictionaries, lists and tuples of tensors, arrays and plain values.

    Args:
        state: keys of dictionaries are strings or integers.
        path: without a suffix; `path.json` holds the structure, `path.safetensors` the tensors.

    Raises:
        TypeError: for any other value, with the names that lead to it.
    """
    tensors: dict[str, torch.Tensor] = {}
    structure = _packed(state, tensors, path.name)
    path.with_suffix(".json").write_text(json.dumps(structure) + "\n", encoding="utf-8")
    save_file(tensors, path.with_suffix(".safetensors"))


def read_state(path: Path, copied: bool = True) -> Any:
    """Return the tree that `write_state` wrote, with its tensors on the CPU.

    Args:
        path: what was given to `write_state`.
        copied: False leaves the tensors in the file, which processes then share, for readers that copy their part.

    Raises:
        ValueError: if a file is missing or damaged.
    """
    try:
        structure = read_table(path.with_suffix(".json"))
        tensors = load_file(path.with_suffix(".safetensors"))
        if copied:
            tensors = {name: tensor.clone() for name, tensor in tensors.items()}  # aligned: rounding depends on it
        return _unpacked(structure, tensors)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise ValueError(f"the state in {str(path)!r} cannot be read: {error}") from error


def _packed(value: Any, tensors: dict[str, torch.Tensor], name: str) -> Any:
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
        return {"dict": [[key, _packed(item, tensors, f"{name}/{key}")] for key, item in value.items()]}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_packed(item, tensors, f"{name}[{i}]") for i, item in enumerate(value)]}
    allowed = "numbers, strings, None, tensors, arrays, and lists, tuples and dictionaries (with names) of these"
    raise TypeError(f"{name} cannot be saved: it is a {type(value).__name__}; allowed: {allowed}")


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
