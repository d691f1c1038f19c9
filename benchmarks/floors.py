"""What the arithmetic alone would take: two operations per weight and token in acting, six in training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from agents.policies.language import policy as language_model
from agents.policies.language.decoding import step as steps

from .measure import clock

ROWS = 256


def product_speed(model: Any, rows: int = ROWS, work: float = 2e9) -> float:
    """Return the operations per second of the faster of two plain products with weights as wide as the model's.

    Args:
        model: whose width counts.
        rows: of the other factor.
        work: operations of one measurement.
    """
    width = model.config.get_text_config().hidden_size
    x, weights, best = torch.randn(rows, width), torch.randn(3 * width, width), 0.0
    of_one = 2 * rows * weights.numel()
    repeats = max(int(work / of_one), 1)
    for _ in range(5):
        for first, second in ((x, weights.mT), (weights, x.mT)):  # the same product; threads divide it differently
            with clock() as seconds:
                for _ in range(repeats):
                    first @ second
            best = max(best, repeats * of_one / seconds())
    return best


def copy_speed(size: int = 2**26) -> float:
    """Return the bytes per second that a plain copy of so many bytes reads and writes."""
    source, best = torch.ones(size // 4), 0.0
    target = torch.empty_like(source)
    for _ in range(5):
        with clock() as seconds:
            target.copy_(source)
        best = max(best, 2 * size / seconds())
    return best


def update_floor(agent: Any, updates: int = 5) -> float:
    """Return the seconds of an update's products at that speed, for the tokens that it reads."""
    with counted_tokens(agent.policy) as tokens:
        agent.learn(total_episodes=agent.episodes_per_update * updates, reset_num_timesteps=False)
    return operations(agent.policy, tokens) / updates / product_speed(agent.policy.model)


def acting_floor(model: Any, rows: int, prompt: int, new: int) -> float:
    """Return the generated tokens per second that the products allow if every token is read once."""
    size = sum(p.numel() for p in model.parameters())
    return product_speed(model, rows) / (2 * size) * new / (prompt + new)


def operations(policy: Any, tokens: dict[str, int]) -> float:
    """Return the number of operations in products with the model's weights."""
    size = sum(p.numel() for p in policy.parameters())
    return 2 * size * (tokens["acting"] + 3 * tokens["training"])


@contextmanager
def counted_tokens(policy: Any) -> Iterator[dict[str, int]]:
    """Count the tokens that the policy reads in acting (on a CPU) and in training while the block runs.

    The functions that read are replaced, not hooked: a model with a hook acts by its own forward pass, which is slower.
    """
    tokens = {"acting": 0, "training": 0, "steps": 0}  # "steps": those of "acting" that decode steps read
    trunk = type(policy.model.base_model)
    step, plan, forward = steps.LlamaStep.__call__, language_model.plan_reading, trunk.forward

    def counted_step(self: Any, read: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
        tokens["acting"] += len(read)
        tokens["steps"] += len(read)
        return step(self, read, *rest, **named)

    def counted_plan(*args: Any) -> Any:
        reading = plan(*args)
        tokens["training"] += reading.ids.numel()
        return reading

    def counted_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("past_key_values") is not None:
            tokens["acting"] += (args[0] if args else kwargs["input_ids"]).numel()
        return forward(self, *args, **kwargs)

    steps.LlamaStep.__call__ = counted_step  # type: ignore[method-assign, assignment]
    language_model.plan_reading = counted_plan  # type: ignore[assignment]
    trunk.forward = counted_forward
    try:
        yield tokens
    finally:
        steps.LlamaStep.__call__ = step  # type: ignore[method-assign]
        language_model.plan_reading = plan
        trunk.forward = forward
