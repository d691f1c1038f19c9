"""Products with the weights of linear layers on a CPU, x Wᵀ + b, by the library that is fastest at them.

In float32 torch multiplies with Intel's MKL, which on AMD's processors takes kernels of older instructions: on an EPYC
with AVX-512, oneDNN takes half of its time or less, packed or not. Which library multiplies follows the processor, and
is never timed: the same machine always computes the same bits. torch has these products for its compiler, under names
that may change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from typing_extensions import override

LARGE = 2**16  # weights of a layer, from which on packing pays
# Rows of a product in float32, from which on it is faster with weights packed for MKL, by torch's name of the
# instructions.
ROWS = {"AVX2": 2, "AVX512": 4}
ROWS_ELSEWHERE = 16
USUAL_ROWS = 32  # of a decode step, which packing may take into account
WORTH_IT = 2**16  # numbers in x, from which on another library pays for itself in training


def prefers_onednn() -> bool:
    """Whether oneDNN multiplies in float32 faster than MKL here: on AMD's processors, as far as torch tells them."""
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # of newer versions of torch
    return str(capabilities.get("cpu_name")).startswith("AMD")


# Training and prompts: with weights as they are.


class Product(torch.autograd.Function):
    """The product x Wᵀ + b [..., out] by oneDNN, given x [..., in], W [out, in] and b [out] or None; in float32."""

    @staticmethod
    def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Return the product."""
        return _by_onednn(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        """Keep x and W for the gradients."""
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of x, W and b: products as well."""
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        rows = gradient.flatten(0, -2)  # [R, out]
        return (
            Product.apply(gradient, weight.T, None) if of_x else None,
            Product.apply(rows.T, x.flatten(0, -2).T, None) if of_weight else None,
            rows.sum(0) if of_bias else None,
        )


class _Products(TorchFunctionMode):
    """Linear layers in float32 multiply by `Product`."""

    @override
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is F.linear and len(args) == 3 and not kwargs and all(map(_is_single, args[:2])):
            return Product.apply(*args)
        return function(*args, **(kwargs or {}))


def _is_single(x: torch.Tensor) -> bool:
    return type(x) in (torch.Tensor, torch.nn.Parameter) and x.dtype is torch.float32 and x.device.type == "cpu"


def fast_products(device: torch.device, dtype: torch.dtype, numbers: int) -> AbstractContextManager[Any]:
    """Return a context in which the linear layers of any model multiply by the library that is fastest here.

    Args:
        device: of the model.
        dtype: of its weights.
        numbers: in the input of a layer.
    """
    pays = device.type == "cpu" and dtype is torch.float32 and numbers >= WORTH_IT
    return _Products() if pays and prefers_onednn() and can_pack(dtype) else nullcontext()


# Acting: with weights in the order in which the kernel reads them. A product of few rows with large weights spends most
# of its time on bringing them into that order.


def may_pack(weight: torch.Tensor) -> bool:
    """Whether products with this weight become faster."""
    here = weight.device.type == "cpu" and not weight.is_inference()
    return here and weight.numel() >= LARGE and can_pack(weight.dtype)


@functools.cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether torch can pack weights of this type here, tried on a small product."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    x, weight, bias = (torch.arange(n, dtype=torch.float32).sin().to(dtype) for n in (4 * 8, 6 * 8, 6))
    x, weight = x.view(4, 8), weight.view(6, 8)
    try:
        with torch.inference_mode():
            made = pack(weight)(x, bias)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    return torch.allclose(made, F.linear(x, weight, bias), atol=16 * torch.finfo(dtype).eps)


def least_rows(dtype: torch.dtype) -> int:
    """Return the rows of a product from which on it is faster with packed weights on this processor."""
    if dtype is torch.bfloat16 or prefers_onednn():
        return 1
    return ROWS.get(torch.backends.cpu.get_cpu_capability(), ROWS_ELSEWHERE)


def pack(weight: torch.Tensor) -> Callable[..., torch.Tensor]:
    """Return the product with a copy of a weight [out, in] in the kernel's order.

    Returns:
        A function of x [..., in] and a bias [out], or None, which returns W x + b [..., out].
    """
    if weight.dtype is torch.float32 and torch.backends.mkl.is_available() and not prefers_onednn():
        ordered = torch.ops.mkl._mkl_reorder_linear_weight(weight, USUAL_ROWS)
        return lambda x, bias: torch.ops.mkl._mkl_linear(x, ordered, weight, bias, x.numel() // x.shape[-1])
    ordered = torch.ops.mkldnn._reorder_linear_weight(weight, USUAL_ROWS)
    return lambda x, bias: _by_onednn(x, ordered, bias)


def _by_onednn(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    made: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return made
