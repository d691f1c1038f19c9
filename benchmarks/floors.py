"""The time of the arithmetic alone: two operations per weight and token in acting, six in training."""

from __future__ import annotations

from typing import Any

import torch

from rlenv.agents import Rollout
from rlenv.agents.language.products import Product, prefers_onednn

from .measure import clock

ROWS = 256


def product_speed(model: Any, rows: int = ROWS, work: float = 2e9) -> float:
    """Return the operations per second of the fastest way to a product with weights as wide as the model's.

    Args:
        model: whose width, type and device count.
        rows: of the other factor.
        work: operations of one measurement.
    """
    width, like = model.config.get_text_config().hidden_size, next(model.parameters()).detach()
    x, weights, best = torch.randn(rows, width).to(like), torch.randn(3 * width, width).to(like), 0.0
    of_one = 2 * rows * weights.numel()
    repeats = max(int(work / of_one), 1)
    ways = [lambda: x @ weights.mT, lambda: weights @ x.mT]  # the same product; threads divide it differently
    if like.device.type == "cpu" and like.dtype is torch.float32 and prefers_onednn():
        ways.append(lambda: Product.apply(x, weights, None))
    for _ in range(5):
        for product in ways:
            with clock() as seconds:
                for _ in range(repeats):
                    product()
            best = max(best, repeats * of_one / seconds())
    return best


def read_once(rollout: Rollout) -> int:
    """Return the tokens of these episodes if every group's prompt is read once."""
    length: Any = rollout.observations["length"]  # type: ignore[index]
    prompts = dict(zip(rollout.groups.tolist(), length.tolist(), strict=True))
    return sum(prompts.values()) + int(rollout.lengths.sum())


def acting_floor(model: Any, rollout: Rollout) -> float:
    """Return the generated tokens per second that the products allow."""
    rows = min(len(rollout), ROWS)
    return product_speed(model, rows) / (2 * size(model)) * int(rollout.lengths.sum()) / read_once(rollout)


def size(model: Any) -> int:
    """Return the number of weights."""
    return sum(parameter.numel() for parameter in model.parameters())
