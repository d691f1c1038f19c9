"""Parts of Llama's layers with written-out gradients, for training on a CPU.

There, what is not a product waits for memory: autograd keeps, reads and allocates a tensor for every operation. These
functions compute the same with few passes over the tokens and keep only what the gradient needs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ..decoding.step import rotate

CHUNK = 1024  # tokens whose wide intermediate results exist at once


class RmsNorm(torch.autograd.Function):
    """y = x w r with r = 1 / √(mean x² + ε), over the last axis (Zhang & Sennrich 2019):

    ∂x = r (g - x r² mean(g x)) with g = w ∂y        ∂w = Σ r x ∂y
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """Return y, given x [M, H, D] and a weight for each head [H, D]."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = length.square_().div_(x.shape[-1]).add_(eps).rsqrt_()  # [M, H, 1]
        ctx.save_for_backward(x, weight, scale)
        return (x * weight).mul_(scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        """Return the gradients of x and of the weight."""
        x, weight, scale = ctx.saved_tensors
        product = gradient * x  # [M, H, D]
        total = (product * weight).sum(-1, keepdim=True)  # of g x [M, H, 1]
        made = (gradient * weight).mul_(scale).addcmul_(x, total.mul_(scale**3), value=-1 / x.shape[-1])
        of_weight = product.mul_(scale).sum(0) if ctx.needs_input_grad[1] else None
        return made, of_weight, None


class Rotated(torch.autograd.Function):
    """Each pair (x_i, x_{i + D/2}) turned by its angle (rotary positions, Su et al. 2021); the gradient turns back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Return x [M, H, D] turned by angles [M, 1, D]; the first half of `sin` is negated."""
        ctx.save_for_backward(cos, sin)
        return rotate(x, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """Return the gradient of x."""
        cos, sin = ctx.saved_tensors
        return (gradient * sin).roll(gradient.shape[-1] // 2, dims=-1).addcmul_(gradient, cos), None, None


class GatedMlp(torch.autograd.Function):
    """y = x + W₃(silu(W₁ h) ∘ W₂ h) (Shazeer 2020).

    What is as wide as the layer is computed for some tokens at a time; only W₁ h and W₂ h are kept.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, h: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        """Return y [M, D], given x and h [M, D], W₁ over W₂ [2 F, D] and W₃ [D, F]."""
        opened = h @ gate_up.mT  # [M, 2 F]
        made = torch.empty_like(x)
        for rows, out, (gate, up) in zip(x.split(CHUNK), made.split(CHUNK), _halves(opened), strict=True):
            torch.addmm(rows, torch.nn.functional.silu(gate).mul_(up), down.mT, out=out)
        ctx.save_for_backward(h, opened, gate_up, down)
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of x, h and the weights."""
        h, opened, gate_up, down = ctx.saved_tensors
        of_h = torch.empty_like(h)
        of_gate_up, of_down = (
            torch.zeros_like(weight) if needed else None
            for weight, needed in zip((gate_up, down), ctx.needs_input_grad[2:], strict=True)
        )
        chunks = (gradient.split(CHUNK), h.split(CHUNK), of_h.split(CHUNK), _halves(opened))
        for rows, read, out, (gate, up) in zip(*chunks, strict=True):
            inner, silu = rows @ down, torch.nn.functional.silu(gate)  # [c, F]
            if of_down is not None:
                of_down.addmm_(rows.mT, silu * up)
            of_opened = torch.empty(len(rows), 2 * len(inner.mT), dtype=inner.dtype)
            of_gate, of_up = of_opened.chunk(2, 1)
            torch.mul(inner, silu, out=of_up)
            torch.ops.aten.silu_backward.grad_input(inner.mul_(up), gate, grad_input=of_gate)
            torch.mm(of_opened, gate_up, out=out)
            if of_gate_up is not None:
                of_gate_up.addmm_(of_opened.mT, read)
        return gradient, of_h, of_gate_up, of_down


def _halves(opened: torch.Tensor) -> list[tuple[torch.Tensor, ...]]:
    """Return both halves of the columns of [M, 2 F] for some tokens at a time."""
    return [rows.chunk(2, 1) for rows in opened.split(CHUNK)]
