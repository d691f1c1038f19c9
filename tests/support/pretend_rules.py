"""What a CUDA device refuses or waits for, operation by operation, for the pretend one in `pretend_device.py`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

ROOT = str(Path(__file__).parents[2])
HELPERS = ("pretend_device.py", "pretend_rules.py")
aten = torch.ops.aten
# Their result, or its shape, needs numbers from the device. Indexing with a mask is one, too: see `counts_a_mask`.
WAITING = {
    aten._local_scalar_dense.default, aten.equal.default, aten.nonzero.default, aten.masked_select.default,
    aten._unique.default, aten._unique2.default, aten.unique_dim.default, aten.unique_consecutive.default,
    aten.unique_dim_consecutive.default, aten.bincount.default, aten.masked_scatter_backward.default,
    aten.multinomial.default, aten.normal.Tensor_Tensor, aten.repeat_interleave.Tensor,
}  # fmt: skip
INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}


class Facts(NamedTuple):
    """What is known of an operation: `written` are the places and names of the arguments that it writes to."""

    waits: bool
    is_random: bool
    is_composite: bool
    makes: bool
    written: tuple[tuple[int, str], ...]


@functools.cache
def facts_of(func: Any) -> Facts:
    schema = func._schema
    written = [(i, e.name) for i, e in enumerate(schema.arguments) if e.alias_info and e.alias_info.is_write]
    return Facts(
        waits=func in WAITING,
        is_random=torch.Tag.nondeterministic_seeded in func.tags,
        is_composite=torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"),
        makes=not any(each.alias_info for each in schema.returns),
        written=tuple(written) if schema.returns else (),
    )


def counts_a_mask(func: Any, args: Any) -> bool:
    """Tell whether the cells of a mask must be counted: not to write one number through a single mask."""
    if func not in INDEXING:
        return False
    masks = [x for x in args[1] if x is not None and x.dtype in (torch.bool, torch.uint8)]
    fills = func is not aten.index.Tensor and len(args[1]) == 1 and args[2].numel() == 1
    return bool(masks) and not fills


def check_generator(generator: torch.Generator | None, on_device: bool) -> None:
    """Refuse a generator of the other device."""
    if generator is not None and (generator._cdata in PretendGenerator.known) != on_device:
        wanted, found = ("cuda", "cpu") if on_device else ("cpu", "cuda")
        raise RuntimeError(f"Expected a '{wanted}' device type for generator but found '{found}'")


def refuse_mixing(func: Any, on_host: Iterable[torch.Tensor]) -> None:
    """Refuse tensors of the host beside one of the device, unless they are single numbers."""
    if any(x.dim() for x in on_host):
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found cuda:0 and cpu: {func} at {line_of_ours()}"
        )


class PretendGenerator(torch.Generator):
    """A generator of the pretend device; `known` finds it again by the address that operations see."""

    device = property(lambda self: torch.device("cuda:0"))  # type: ignore[assignment]
    known: dict[int, PretendGenerator] = {}  # kept for good: addresses are used again

    def __init__(self) -> None:
        self.known[self._cdata] = self


def line_of_ours() -> str:
    """Return the innermost line of this repository that is being run."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(ROOT) and not file.endswith(HELPERS) and "site-packages" not in file:
            return f"{file.removeprefix(ROOT + '/')}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "a library"


def leaves(values: Iterable[Any]) -> Iterator[Any]:
    """Yield what is in arguments, also in lists of them."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from leaves(value)
        else:
            yield value


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to an argument or to each in a list of them."""
    return type(value)(mapped(function, x) for x in value) if type(value) in (list, tuple) else function(value)
