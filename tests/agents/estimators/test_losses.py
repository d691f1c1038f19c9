"""Surrogates and critic losses, against scalar loops and their own gradients."""

from __future__ import annotations

import math

import pytest
import torch
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from agents.estimators.losses import (
    clipped_ratio,
    clipped_squared_error,
    is_clipped,
    per_sequence,
    policy_gradient,
    squared_error,
)

few = drawn(20)
Clip = tuple[float, float, float | None]
ranges = st.sampled_from([(0.2, 0.2, None), (0.2, 0.28, 3.0), (0.5, 0.1, 1.2), (0.01, 0.9, None)])


def drawn(seed: int, count: int = 3) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(4, 5, generator=generator, dtype=torch.float64) for _ in range(count)]


@few
@given(st.integers(0, 999), ranges)
def test_is_clipped_says_where_the_surrogate_has_no_gradient(seed: int, clip: Clip) -> None:
    log_probs, old, advantages = drawn(seed)
    log_probs.requires_grad_()
    clipped_ratio(log_probs, old, advantages, *clip).sum().backward()
    assert torch.equal(log_probs.grad == 0, is_clipped(log_probs.detach(), old, advantages, *clip))
    free = ~is_clipped(log_probs.detach(), old, advantages, *clip)
    ratio = (log_probs.detach() - old).exp()
    torch.testing.assert_close(log_probs.grad[free], (ratio * advantages)[free], atol=1e-12, rtol=1e-12)


def test_the_log_probability_of_a_sequence_by_hand() -> None:
    values = torch.tensor([[-1.0, -3.0, math.nan], [-2.0, math.nan, 0.0], [math.nan] * 3]).requires_grad_()
    mask = torch.tensor([[True, True, False], [True, False, False], [False] * 3])
    found = per_sequence(values, mask)
    assert found.tolist() == [[-2.0] * 3, [-2.0] * 3, [0.0] * 3]
    found.sum().backward()
    assert values.grad.tolist() == [[1.5, 1.5, 0.0], [3.0, 0.0, 0.0], [0.0] * 3]


def test_only_the_new_log_probabilities_are_differentiated() -> None:
    log_probs, old, advantages = (x.requires_grad_() for x in drawn(1))
    (clipped_ratio(log_probs, old, advantages, 0.2, 0.2) + policy_gradient(log_probs, advantages)).sum().backward()
    assert log_probs.grad is not None and old.grad is None and advantages.grad is None


@few
@given(st.integers(0, 999), st.sampled_from([0.1, 0.5, 2.0]))
def test_clipped_squared_error_against_a_plain_loop(seed: int, clip: float) -> None:
    values, old_values, targets = drawn(seed)
    found = clipped_squared_error(values, old_values, targets, clip)
    for i, t in torch.cartesian_prod(torch.arange(4), torch.arange(5)).tolist():
        value, old, target = float(values[i, t]), float(old_values[i, t]), float(targets[i, t])
        near = min(max(value, old - clip), old + clip)
        assert float(found[i, t]) == pytest.approx(max((value - target) ** 2, (near - target) ** 2), abs=1e-12)


def test_a_critic_far_from_its_old_value_is_pushed_no_further_but_may_come_back() -> None:
    values = torch.tensor([[1.0, 1.0]], dtype=torch.float64, requires_grad=True)
    old_values, targets = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[3.0, -1.0]], dtype=torch.float64)
    clipped_squared_error(values, old_values, targets, 0.5).sum().backward()
    assert values.grad.tolist() == [[0.0, 4.0]]


def test_only_the_new_values_are_differentiated() -> None:
    values, old_values, targets = (x.requires_grad_() for x in drawn(2))
    (clipped_squared_error(values, old_values, targets, 0.3) + squared_error(values, targets)).sum().backward()
    assert values.grad is not None and old_values.grad is None and targets.grad is None
