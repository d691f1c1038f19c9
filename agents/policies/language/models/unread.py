"""Weights that are read once it is known which rows of them this process keeps; see `sharded.py`.

A model made within `weights_unread` has parameters without memory, on torch's device "meta", that know where their
values come from. Of safetensors files, only the rows that a process keeps are read. Random weights are drawn one whole
tensor after the other, so that they are those of the model that one process makes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel
from transformers.initialization import no_init_weights
from transformers.utils import cached_file

from ....core.checks import first_line
from ....distributed import parallel
from ....distributed.parts import Part, are_parts, check_parts, read_parts
from ....distributed.shards import Origin, own_rows

FILE, INDEX = "model.safetensors", "model.safetensors.index.json"  # of transformers
_FILLS = ("normal_", "uniform_", "kaiming_uniform_", "fill_", "zero_")  # how presets are initialized
_NEVER_READ = r"rotary_emb\.inv_freq$"  # in files of earlier versions of transformers

_asked = False


class Unread(nn.Parameter):
    """A parameter on torch's device "meta" that knows where its values come from; so do its copies."""

    origin: Origin

    def __deepcopy__(self, memo: dict[int, Any]) -> Unread:
        return memo.setdefault(id(self), unread(self, self.origin))


def unread(parameter: torch.Tensor, origin: Origin) -> Unread:
    """Return a parameter of this shape, type and need of a gradient whose values come from `origin`."""
    made = Unread(parameter.detach().to("meta"), parameter.requires_grad)
    made.origin = origin
    return made


def rows_of(whole: torch.Tensor) -> Origin:
    """Return where the values of a parameter come from whose whole tensor is at hand."""
    return lambda start, stop: whole[start:stop]


def as_it_is(rows: torch.Tensor) -> Origin:
    """Return where the values of a parameter come from of which this process's rows are at hand."""
    return lambda start, stop: rows


def is_unread(module: nn.Module) -> bool:
    """Return whether any parameter of a module has no values yet."""
    return any(isinstance(parameter, Unread) for parameter in module.parameters())


@contextmanager
def weights_unread() -> Iterator[None]:
    """Within this context, models that are loaded have weights without memory, if their files allow it."""
    global _asked
    before, _asked = _asked, True
    try:
        yield
    finally:
        _asked = before


def asked() -> bool:
    """Return whether this is within `weights_unread`."""
    return _asked


# Models without memory.


def drawn(make: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    """Return the new model that `make` makes, of whose random weights this process keeps its rows."""
    with _parameters_unread(), _Drawing():
        return make()


def empty(make: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    """Return the model that `make` makes, with weights that come from nowhere yet; buffers have their values."""
    with _parameters_unread(), no_init_weights():
        model = make()
    model.tie_weights()
    return model


@contextmanager
def _parameters_unread() -> Iterator[None]:
    """Take the memory from every parameter as soon as a module gets it."""

    def hook(module: nn.Module, name: str, parameter: nn.Parameter) -> Unread | None:
        return None if isinstance(parameter, Unread) else unread(parameter, _from_nowhere)

    handle = register_module_parameter_registration_hook(cast(Any, hook))  # its annotation allows no new parameter
    try:
        yield
    finally:
        handle.remove()


def _from_nowhere(start: int, stop: int) -> torch.Tensor:
    raise RuntimeError("a weight was neither read nor drawn")


class _Drawing(TorchFunctionMode):
    """Draws each weight whole, in turn, and keeps this process's rows of it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        target = args[0] if args else kwargs.get("tensor")
        if not isinstance(target, Unread) or func.__name__ not in _FILLS:
            return func(*args, **kwargs)
        whole = torch.empty(target.shape, dtype=target.dtype)
        func(*(whole, *args[1:])[: len(args)], **(kwargs if args else {**kwargs, "tensor": whole}))
        target.origin = as_it_is(whole[slice(*own_rows(len(whole)))].clone())
        return target


# Files.


@dataclass(frozen=True)
class Stored:
    """A tensor in a safetensors file; called, it returns rows."""

    file: Path
    name: str
    shape: tuple[int, ...]

    def __call__(self, start: int, stop: int) -> torch.Tensor:
        """Return the rows [start, stop)."""
        with safe_open(self.file, framework="pt") as opened:  # maps the file; what is not asked for is not read
            return opened.get_slice(self.name)[start:stop]


def stored(spec: str | Path) -> dict[str, Stored]:
    """Return the tensors in the safetensors files of a model folder or id, by name.

    Raises:
        OSError, SafetensorError: if there are no such files, or one is damaged.
    """
    if (single := _find(spec, FILE)) is not None:
        files = {single}
    elif (index := _find(spec, INDEX)) is not None:
        named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        files = {found for name in named if (found := _find(spec, name)) is not None}
        if len(files) < len(named):
            raise OSError(f"a file that {INDEX} names is missing")
    else:
        raise OSError("they are not safetensors")
    return {name: each for file in files for name, each in _tensors_in(file).items()}


def _tensors_in(file: Path) -> dict[str, Stored]:
    """Return the tensors in one safetensors file, by name."""
    with safe_open(file, framework="pt") as opened:
        shapes = {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118 (no mapping)
    return {name: Stored(file, name, tuple(shape)) for name, shape in shapes.items()}


def _find(spec: str | Path, name: str) -> Path | None:
    found = cached_file(str(spec), name, _raise_exceptions_for_missing_entries=False)
    return None if found is None else Path(found)


def attach(model: PreTrainedModel, weights: Mapping[str, torch.Tensor], found: Mapping[str, Stored]) -> str | None:
    """Let the weights of a model come from files; buffers that are saved are read at once.

    Args:
        model: from `empty`.
        weights: of it, by their names in files.
        found: from `stored`; the names may lack the prefix of the model's trunk.

    Returns:
        Why the files do not fit; None if they do.
    """
    ignored = re.compile("|".join([_NEVER_READ, *(model._keys_to_ignore_on_load_unexpected or ())]))
    longer = {name: f"{model.base_model_prefix}.{name}" for name in found}
    named = {longer[name] if longer[name] in weights else name: each for name, each in found.items()}
    for name, each in list(named.items()):
        if name not in weights:
            if not ignored.search(name):
                return f"{name} is not a weight of {type(model).__name__}"
            del named[name]
        elif tuple(weights[name].shape) != each.shape:
            return f"{name} has another size in {type(model).__name__}"
    if missing := sorted(weights.keys() - named.keys()):
        return f"{missing[0]} is missing"
    _assign(weights, named)
    return None


def read_later(weights: Mapping[str, torch.Tensor], file: Path) -> None:
    """Let weights come from a file, or its parts; those that have memory are read at once.

    Raises:
        ValueError: if the file is missing or damaged, or its tensors are not exactly these.
    """
    if are_parts(file):
        check_parts(weights, file)
        _assign({name: weight for name, weight in weights.items() if isinstance(weight, Unread)}, file)
        now = {name: weight for name, weight in weights.items() if not isinstance(weight, Unread)}
        read_parts(now, file, some=True)
        return
    try:
        found = _tensors_in(file)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"the weights in {str(file)!r} cannot be read: {first_line(error)}") from error
    if wrong := sorted({(n, tuple(w.shape)) for n, w in weights.items()} ^ {(n, t.shape) for n, t in found.items()}):
        raise ValueError(f"the weights in {str(file)!r} do not fit: {wrong[0][0]}")
    _assign(weights, found)


@torch.no_grad()
def _assign(weights: Mapping[str, torch.Tensor], source: Mapping[str, Stored] | Path) -> None:
    """Let weights come from files or from parts; those that have memory, from files, are read at once."""
    for name, weight in weights.items():
        origin = Part(name, source) if isinstance(source, Path) else source[name]
        if isinstance(weight, Unread):
            weight.origin = origin
        else:
            weight.copy_(cast(Stored, origin)(0, len(weight)))


def check_same_files(module: nn.Module) -> None:
    """Check that all processes read the same weights, by the first row of each; all of them call this together.

    Raises:
        ValueError: if their files differ.
    """
    digest, files = hashlib.sha256(), set()
    for parameter in module.parameters():
        if isinstance(parameter, Unread) and isinstance(parameter.origin, Stored):
            digest.update(parameter.origin(0, 1).contiguous().flatten().view(torch.uint8).numpy().tobytes())
            files.add(str(parameter.origin.file.parent))
    digests = parallel.gather(digest.hexdigest())
    if others := [number for number, each in enumerate(digests) if each != digests[0]]:
        raise ValueError(
            f"process {others[0]} finds other weights in {', '.join(sorted(files))} than process 0: "
            "put the same files on every machine"
        )


@contextmanager
def with_stand_ins(model: nn.Module) -> Iterator[None]:
    """Within this context, weights that were not read look as if they were on the CPU, but have no memory either.

    peft puts the adapter of a layer where the layer's weights are.
    """
    places = [
        (part, name, parameter)
        for part in model.modules()
        for name, parameter in part._parameters.items()
        if isinstance(parameter, Unread)
    ]
    for part, name, parameter in places:
        part._parameters[name] = nn.Parameter(
            torch.empty((), dtype=parameter.dtype).expand(parameter.shape), requires_grad=False
        )
    try:
        yield
    finally:
        for part, name, parameter in places:
            part._parameters[name] = parameter
