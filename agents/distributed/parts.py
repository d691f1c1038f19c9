"""Files of tensors in parts: every process writes what it holds, through torch.distributed.checkpoint.

In the place of NAME.safetensors is the folder NAME.parts, with safetensors files of each process. Any number of
processes can read it, each into tensors that are dealt out in its own way, or into whole ones. The format is that for
safetensors, since the usual one of torch.distributed.checkpoint has a pickle in it, which may run code when it is read.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from ..core.files import reading
from . import parallel
from .parallel import is_dealt_out

SUFFIX = ".parts"
FILE_BYTES = 2**29  # of one file, roughly: a process writes one after the other, and needs memory for two copies of one


@dataclass(frozen=True)
class Part:
    """Stands for a tensor in the state of a checkpoint until it is known how it is to be dealt out.

    Attributes:
        name: of the tensor.
        file: in whose place the parts are; see `read_parts`.
    """

    name: str
    file: Path


def library() -> Any:
    """Return torch.distributed.checkpoint.

    Raises:
        ValueError: if this torch has none, or one that cannot write parts.
    """
    with suppress(ImportError, AttributeError):
        found = import_module("torch.distributed.checkpoint")
        if "save_distributed" in inspect.signature(found.HuggingFaceStorageWriter).parameters:
            return found
    raise ValueError(
        f"sharded checkpoints need torch.distributed.checkpoint of a newer PyTorch than this ({torch.__version__}): "
        "install one; to write whole ones, pass sharded_checkpoints=False (--no-sharded-checkpoints)"
    )


def place_of(file: Path) -> Path:
    """Return the folder of the parts of a file."""
    return file.with_suffix(SUFFIX)


def are_parts(file: Path) -> bool:
    """Return whether a file was written in parts."""
    return place_of(file).is_dir()


def own_files(folder: Path) -> list[Path]:
    """Return the files in a folder that `write_parts` has written in this process."""
    return sorted(folder.rglob(f"*{SUFFIX}/shard-{parallel.rank() + 1:05d}-*"))


def write_parts(tensors: Mapping[str, torch.Tensor], file: Path) -> None:
    """Write tensors in parts; all processes call this together. Of those that all have whole, one process writes each.

    Raises:
        OSError: in all processes, if one of them cannot write.
    """
    dcp = library()
    before = 0
    files: dict[str, int] = {}  # the number of each tensor's file, from 1
    for name, tensor in tensors.items():
        files[name] = 1 + before // FILE_BYTES
        before += tensor.numel() * tensor.element_size() // parallel.size()
    writer = dcp.HuggingFaceStorageWriter(str(place_of(file)), files, save_distributed=True)
    _unwrapped(lambda: dcp.save(dict(tensors), storage_writer=writer))


def read_parts(into: Mapping[str, torch.Tensor], file: Path, some: bool = False) -> None:
    """Fill tensors, whole or dealt out, with what `write_parts` wrote; each process reads for itself.

    Args:
        into: by name.
        file: as for `write_parts`.
        some: whether there may be others among the parts.

    Raises:
        ValueError: for other names or another shape, or if a part is missing.
    """
    dcp = library()
    check_parts(into, file, some)
    reader = dcp.HuggingFaceStorageReader(str(place_of(file)))
    held = {name: tensor.detach() for name, tensor in into.items()}
    with torch.no_grad(), warnings.catch_warnings(), _readable(file):
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # alone on purpose
        _unwrapped(lambda: dcp.load(held, storage_reader=reader, no_dist=True))


def check_parts(into: Mapping[str, torch.Tensor], file: Path, some: bool = False) -> None:
    """Check that `read_parts` can fill these tensors; for arguments and errors see there."""
    found = {name: tuple(about.size) for name, about in _described(file).items()}
    wanted = {name: tuple(tensor.shape) for name, tensor in into.items()}
    wrong = [name for name in wanted if found.get(name) != wanted[name]]
    wrong += [name for name in found if name not in wanted and not some]
    if wrong:
        shapes = f"{found.get(wrong[0], 'missing')} there, {wanted.get(wrong[0], 'unknown')} here"
        raise ValueError(f"the parts in {str(place_of(file))!r} do not fit: {wrong[0]} is {shapes}")


def load_parts(file: Path, *names: str) -> dict[str, torch.Tensor]:
    """Return the tensors of these names, by default all that `write_parts` wrote, whole, on the CPU.

    Raises:
        ValueError: if a part is missing.
    """
    found = {name: about for name, about in _described(file).items() if not names or name in names}
    tensors = {name: torch.empty(about.size, dtype=about.properties.dtype) for name, about in found.items()}
    read_parts(tensors, file, some=True)
    return tensors


def take_out(state: Any, file: Path) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return a nested state with `Part`s in place of the tensors that are dealt out, and those by name.

    Args:
        state: dictionaries, lists and tuples.
        file: where the parts will be.
    """
    tensors: dict[str, torch.Tensor] = {}

    def taken(value: Any, name: str) -> Any:
        if isinstance(value, dict):
            return {key: taken(item, f"{name}/{key}") for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(taken(item, f"{name}/{i}") for i, item in enumerate(value))
        if not is_dealt_out(value):
            return value
        tensors[name] = value
        return Part(name, file)

    return taken(state, file.stem), tensors


def put_in(wanted: Mapping[Part, torch.Tensor]) -> None:
    """Fill tensors with the parts that stand for them."""
    for file in {part.file for part in wanted}:
        read_parts({part.name: tensor for part, tensor in wanted.items() if part.file == file}, file, some=True)


def whole_parts(state: Any) -> Any:
    """Return a nested state with whole tensors in place of `Part`s that were not used since loading."""
    if isinstance(state, dict):
        return {key: whole_parts(item) for key, item in state.items()}
    if type(state) in (list, tuple):
        return type(state)(map(whole_parts, state))
    return load_parts(state.file, state.name)[state.name] if isinstance(state, Part) else state


def _described(file: Path) -> Any:
    """Return what the parts record about each tensor.

    Raises:
        ValueError: if they do not make up whole tensors.
    """
    reader = library().HuggingFaceStorageReader(str(place_of(file)))
    with _readable(file):
        about = reader.read_metadata().state_dict_metadata
    for name, tensor in about.items():
        if sum(prod(chunk.sizes) for chunk in tensor.chunks) != prod(tensor.size):
            raise ValueError(f"{str(place_of(file))!r} is damaged: a part of {name} is missing")
    return about


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Turn the errors of parts that are damaged into one line."""
    try:
        with reading(place_of(file)):
            yield
    except SafetensorError as error:
        raise ValueError(f"{str(place_of(file))!r} cannot be loaded: {error}") from error


def _unwrapped(work: Callable[[], Any]) -> None:
    """Do this; raise the first error of any process as it was there."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        work()
    except CheckpointException as error:
        cause, _ = next(iter(error.failures.values()))
        raise cause from None
