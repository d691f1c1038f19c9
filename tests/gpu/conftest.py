"""These tests run on a CUDA device with `make test-gpu`; without one, the fast tests run them on a pretend one.

The tensors of the pretend device say `cuda:0` and keep their data in host memory. It refuses what CUDA refuses:
operations that mix devices, generators of the other device, `numpy()` of a tensor on the device, and, while a graph is
captured, synchronizations and random numbers. It also refuses indices on the host, which CUDA copies, and draws from
its global generator, which nothing of ours may change. It counts synchronizations by the line of this repository that
caused them. It says nothing about kernels: neither speed nor rounding. To torch's C++ code the tensors are on a meta
device with an index of its own, which autograd accepts in any build of torch.

A test with the parameter `where="mps"` gets Apple's device instead, which refuses double precision too.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

REAL = torch.cuda.is_available()
ROOT = Path(__file__).parents[2]
INSIDE = torch.device("meta:7")
NAMES = (torch.device, str)
aten = torch.ops.aten
# Their result, or its shape, needs numbers from the device. Indexing with a mask is one, too: see `counts_a_mask`.
WAITING = {
    aten._local_scalar_dense.default, aten.equal.default, aten.nonzero.default, aten.masked_select.default,
    aten._unique.default, aten._unique2.default, aten.unique_dim.default, aten.unique_consecutive.default,
    aten.unique_dim_consecutive.default, aten.bincount.default, aten.masked_scatter_backward.default,
    aten.multinomial.default, aten.normal.Tensor_Tensor, aten.repeat_interleave.Tensor,
}  # fmt: skip
INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}


def mapped(function: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """Return a value with the tensors in its lists, tuples and dicts replaced; torch's `tree_map` takes three times."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return type(value)([mapped(function, each) for each in value])
    return {key: mapped(function, each) for key, each in value.items()} if isinstance(value, dict) else value


def tensors_in(*values: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    mapped(found.append, values)
    return found


def on_host(value: torch.Tensor) -> torch.Tensor:
    return value.data_on_host if isinstance(value, DeviceTensor) else value


class Facts(NamedTuple):
    """What is known of an operation: `written` are the places and names of the arguments that it writes to."""

    is_random: bool
    is_composite: bool
    makes: bool
    written: tuple[tuple[int, str], ...]


@functools.cache
def facts_of(func: Any) -> Facts:
    schema = func._schema
    written = [(i, e.name) for i, e in enumerate(schema.arguments) if e.alias_info and e.alias_info.is_write]
    return Facts(
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
    return bool(masks) and not (func is not aten.index.Tensor and len(args[1]) == 1 and args[2].numel() == 1)


def line_of_ours() -> str:
    """Return the innermost line of this repository that is being run."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(ROOT) and file != Path(__file__) and "site-packages" not in file.parts:
            return f"{file.relative_to(ROOT)}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "a library"


class PretendGenerator(torch.Generator):
    """A generator of the pretend device; `known` finds it again by the address that operations see."""

    device = property(lambda self: the_device())  # type: ignore[assignment]
    known: dict[int, PretendGenerator] = {}  # kept for good: addresses are used again

    def __init__(self) -> None:
        self.known[self._cdata] = self


class PretendGraph:
    """A captured graph. What it computes for itself is overwritten between replays, so that nothing relies on it."""

    pools: dict[Any, list[PretendGraph]] = {}  # graphs that share memory

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.calls: list[tuple[Callable[[], Any], list[torch.Tensor]]] = []  # and what each made, but views
        self.pool: Any = None

    def finish(self, pool: Any) -> None:
        """End the capture. Nothing has been computed yet, as far as anyone can see."""
        self.pool = pool
        self.pools.setdefault(pool, []).append(self)
        self.forget()

    def forget(self) -> None:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            for x in (x for _, made in self.calls for x in made):
                x.fill_(torch.nan if x.is_floating_point() else True if x.dtype is torch.bool else 2**20)

    def replay(self) -> None:
        for graph in self.pools[self.pool]:
            graph.forget()
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            for call, made in self.calls:
                again = call()
                for old, new in zip(made, tensors_in(again) if made else (), strict=True):
                    assert old.shape == new.shape, "a shape changed within a captured graph"
                    old.copy_(new)


class DeviceTensor(torch.Tensor):
    """A tensor on the pretend device; `data_on_host` has its data."""

    device = property(lambda self: the_device())
    is_cuda = property(lambda self: the_device().type == "cuda")
    data_on_host: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, data: torch.Tensor) -> DeviceTensor:
        with torch.inference_mode(data.is_inference()):
            made = torch.Tensor._make_wrapper_subclass(
                cls, data.size(), strides=data.stride(), storage_offset=data.storage_offset(), dtype=data.dtype,
                device=INSIDE,
            )  # fmt: skip
        made.data_on_host = data
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert _current is not None, "a tensor of the pretend device outlived it"
        return _current.run(func, args, kwargs or {})

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"can't convert {the_device()} device type tensor to numpy. Use Tensor.cpu() to copy it first.")

    __array__ = numpy

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def data_ptr(self) -> int:
        return self.data_on_host.data_ptr()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            made: torch.Tensor = DeviceTensor(self.data_on_host.clone())
            is_parameter = isinstance(self, torch.nn.Parameter)
            memo[id(self)] = torch.nn.Parameter(made, self.requires_grad) if is_parameter else made
        return memo[id(self)]

    def __repr__(self, **kwargs: Any) -> str:  # type: ignore[override]
        return f"{self.data_on_host!r} on the pretend device"


class PretendDevice(TorchDispatchMode):
    """Sees every operation that has a tensor of the device in it or makes one.

    Attributes:
        synchronizations: how often the host waited for the device, by (line, reason).
        transfers: how many copies there were between host and device, whether the host waited for them or not.
        launches: how many operations computed something on the device.
        captures: how many graphs were captured.
        capturing: the graph that is captured at the moment.
        strict: whether waiting is an error.
        named: what its tensors say.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.named = torch.device(name)
        self.synchronizations: Counter[tuple[str, str]] = Counter()
        self.captures = self.transfers = self.launches = 0
        self.strict = False
        self.capturing: PretendGraph | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and to tell the compiler so takes longer than a small operation."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.run(func, args, kwargs or {})

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation on the data, as the device would."""
        tensors = tensors_in(args, kwargs)
        here = any(isinstance(x, DeviceTensor) for x in tensors)
        there = kwargs["device"] == INSIDE if kwargs.get("device") is not None else here
        facts = facts_of(func)
        generator = kwargs.get("generator") if facts.is_random else None
        if generator is not None and (generator._cdata in PretendGenerator.known) != (here or there):
            raise RuntimeError("Expected another device type for generator")
        if not here and not there:
            return func(*args, **kwargs)
        if facts.is_composite and torch.is_inference_mode_enabled():  # elsewhere autograd has taken these apart
            with self:
                return func.decompose(*args, **kwargs)
        if func is aten.copy_.default:
            there = isinstance(args[0], DeviceTensor)
            self._copy(args[1], there, len(args) > 2 and args[2])
        elif func is aten._to_copy.default:
            self._copy(args[0], there, kwargs.get("non_blocking", False))
        else:
            if any(x.dim() for x in tensors if not isinstance(x, DeviceTensor)):
                raise RuntimeError(f"Expected all tensors to be on the same device: {func} at {line_of_ours()}")
            if (func in WAITING and kwargs.get("output_size") is None) or counts_a_mask(func, args):
                self.wait(func._schema.name.removeprefix("aten::"))
        return self._compute(func, args, kwargs, there)

    def wait(self, why: str) -> None:
        """Note that the host waits for the device."""
        line = line_of_ours()
        if self.capturing is not None or self.strict:
            state = "while a stream is capturing" if self.capturing is not None else "in strict mode"
            raise RuntimeError(f"CUDA error: synchronization not permitted {state}: {why} at {line}")
        self.synchronizations[line, why] += 1

    def _copy(self, source: torch.Tensor, to_device: bool, non_blocking: bool) -> None:
        """Note what a copy waits for: nothing within the device or, if asked, with pinned memory."""
        from_device = isinstance(source, DeviceTensor)
        self.transfers += from_device != to_device and source.numel() > 0
        pinned = to_device and getattr(source, "is_pretend_pinned", False)
        if from_device != to_device and source.numel() and not (non_blocking and pinned):
            self.wait("to the device" if to_device else "to the host")

    def _compute(self, func: Any, args: Any, kwargs: Any, on_device: bool) -> Any:
        data_args, data_kwargs = mapped(on_host, (args, kwargs))
        facts, _ = facts_of(func), data_kwargs.pop("pin_memory", None)
        if "device" in kwargs:
            data_kwargs["device"] = torch.device("cpu")

        def call() -> Any:
            return func(*data_args, **data_kwargs)

        if facts.is_random and self.capturing is not None:
            raise RuntimeError(f"random numbers were drawn while capturing, at {line_of_ours()}")
        if facts.is_random and kwargs.get("generator") is None:
            raise RuntimeError(f"the device's global generator would be changed, at {line_of_ours()}")
        made = call()
        if self.capturing is not None:
            self.capturing.calls.append((call, tensors_in(made) if facts.makes else []))
        if not on_device:
            return made
        self.launches += facts.makes or bool(facts.written)
        if self.named.type == "mps" and any(x.dtype is torch.float64 for x in tensors_in(made)):
            raise TypeError(f"Cannot convert a MPS Tensor to float64 dtype: {func} at {line_of_ours()}")
        if facts.written:  # an argument that was written to is returned as itself
            places = [args[i] if i < len(args) else kwargs[name] for i, name in facts.written]
            return places[0] if len(places) == 1 else tuple(places)
        return mapped(DeviceTensor, made)

    @contextlib.contextmanager
    def capture(self, graph: PretendGraph, pool: Any = None, **kwargs: Any) -> Iterator[None]:
        """Record what is done in this block."""
        self.capturing = graph
        try:
            yield
        finally:
            self.capturing = None
        self.captures += 1
        graph.finish(pool)


_current: PretendDevice | None = None


def the_device() -> torch.device:
    """Return the device as its tensors name it."""
    assert _current is not None
    return _current.named


class _Renamed(TorchFunctionMode):
    """Lets torch's C++ code see the device under its other name: without CUDA it refuses the first."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            return args[0].to(INSIDE)
        on_cuda = the_device().type == "cuda"
        if on_cuda and func is torch.nn.functional.scaled_dot_product_attention:  # its kernels return [N, T, heads, D]
            return func(*args, **(kwargs or {})).transpose(1, 2).contiguous().transpose(1, 2)
        if func in (torch.device, torch.get_device_module):  # these only name it
            return func(*args, **(kwargs or {}))
        named = {name: _renamed(value) for name, value in (kwargs or {}).items()}
        if func in (torch.tensor, torch.as_tensor) and not isinstance(args[0], torch.Tensor):
            target = named.pop("device", None)  # data is not copied to a meta device
            return func(*args, **named).to(_renamed(target))
        return func(*map(_renamed, args), **named)


def _renamed(value: Any) -> Any:
    is_name = isinstance(value, NAMES) and str(value).partition(":")[0] == the_device().type
    return INSIDE if is_name else value


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    if isinstance(tensor, DeviceTensor):
        raise RuntimeError("cannot pin 'torch.cuda' tensors: only dense CPU tensors can be pinned")
    made = tensor.clone()
    made.is_pretend_pinned = True  # type: ignore[attr-defined]
    return made


@contextlib.contextmanager
def pretend_device(name: str = "cuda:0") -> Iterator[PretendDevice]:
    """Make torch believe, within this block, that it has one such device."""
    global _current
    device, host_generator = PretendDevice(name), torch.Generator

    class Stream:  # nothing overlaps
        def __init__(self, *args: Any) -> None: ...

        def wait_stream(self, other: Any) -> None: ...

    class Generator(host_generator):  # type: ignore[misc, valid-type]
        def __new__(cls, device: Any = "cpu") -> Any:
            return PretendGenerator() if torch.device(device).type == the_device().type else host_generator(device)

    pretended: dict[str, Any] = {
        "is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0,
        "synchronize": lambda *a: device.wait("synchronize"), "Stream": Stream,
        "current_stream": Stream, "stream": lambda stream: nullcontext(),
        "is_current_stream_capturing": lambda: device.capturing is not None, "CUDAGraph": PretendGraph,
        "graph": device.capture, "graph_pool_handle": object,
        "get_rng_state": lambda *a: None, "set_rng_state": lambda *a: None,  # what is kept of it and put back
        "set_sync_debug_mode": lambda mode: setattr(device, "strict", mode == "error"),
    }  # fmt: skip
    swaps, lifts = torch.__future__.get_swap_module_params_on_conversion(), torch._C._only_lift_cpu_tensors()
    with pytest.MonkeyPatch.context() as patch, device, _Renamed():
        for function, value in pretended.items() if device.named.type == "cuda" else ():
            patch.setattr(torch.cuda, function, value)
        # An optimizer asks it for its stream, and a build of torch for CUDA then looks for a driver.
        patch.setattr(torch.accelerator, "current_accelerator", lambda **how: None)
        patch.setattr(torch, "Generator", Generator)
        patch.setattr(torch.Tensor, "pin_memory", _pinned)
        torch.__future__.set_swap_module_params_on_conversion(True)  # parameters stay the same objects
        torch._C._set_only_lift_cpu_tensors(True)
        _current = device
        try:
            yield device
        finally:
            _current = None
            torch._C._set_only_lift_cpu_tensors(lifts)
            torch.__future__.set_swap_module_params_on_conversion(swaps)


def pytest_itemcollected(item):
    if REAL:
        item.add_marker("gpu")


@pytest.fixture
def where():
    """The kind of the device, unless it is a parameter of the test."""
    return "cuda"


@pytest.fixture(autouse=True)
def device(where):
    """The pretend device, which counts; None on a real one."""
    if REAL:
        yield None if where == "cuda" else pytest.skip("this device is a pretended one")
    else:
        with pretend_device(f"{where}:0") as pretended:
            yield pretended
