"""What equations of agents do not say of estimators: precision, exact zeros, groups apart, and numbers at the edge.

`tests/laws/test_gradient.py` compares what they return with the agents' equations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st
from tabular import make_agent, random_episodes

from agents import Rollout
from agents.estimators.aggregation import constant_length, sequence_mean, sequence_sum, token_mean
from agents.estimators.gates import largest
from agents.estimators.losses import clipped_ratio, clipped_squared_error, policy_gradient, squared_error
from agents.estimators.mismatch import MODES, importance_weights
from agents.estimators.returns import generalized_advantage, hold_last, overlong_penalty, return_to_go
from agents.estimators.scaling import group_std, over_group_mean, standardize_groups, standardize_parts, whiten
from agents.rollout import ERROR

NAN = torch.nan
few = drawn(20)

# Returns.


REWARDS = torch.tensor([[1.0, 2.0, 4.0], [8.0, -2.0, NAN], [3.0, NAN, NAN], [NAN, NAN, NAN]])


def test_hold_last_keeps_what_is_there_and_repeats_the_last() -> None:
    found = hold_last(REWARDS[:3], ~REWARDS[:3].isnan())
    assert found.tolist() == [[1.0, 2.0, 4.0], [8.0, -2.0, -2.0], [3.0, 3.0, 3.0]]


def test_returns_keep_the_precision_and_the_rewards() -> None:
    rewards, mask = REWARDS.clone().double(), ~REWARDS.isnan()
    for gamma in (0.5, 1.0):
        assert return_to_go(rewards, mask, gamma).dtype == torch.float64
        assert return_to_go(rewards.float(), mask, gamma).dtype == torch.float32
    assert torch.equal(rewards.isnan(), REWARDS.isnan())


def test_lambdas_do_not_change_the_precision() -> None:
    ones, mask = torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool)
    assert generalized_advantage(ones, ones, mask, 1.0, torch.tensor([0.5, 1.0]).double()).dtype == torch.float32


@few
@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 40))
def test_overlong_penalty_follows_the_papers_three_cases(max_steps: int, buffer: int, length: int) -> None:
    """Yu et al. 2025, eq. 13, whose rewards are the negative of these penalties."""
    if length <= max_steps - buffer:
        wanted = 0.0
    elif length <= max_steps:
        wanted = -((max_steps - buffer) - length) / buffer
    else:
        wanted = 1.0
    assert float(overlong_penalty(torch.tensor([length]), max_steps, buffer)) == pytest.approx(wanted)


# Scaling.


sizes = st.lists(st.integers(1, 4), min_size=1, max_size=4)
numbers = st.floats(-1e6, 1e6, width=32)


def rollout_of(groups: list[int], failed: tuple[int, ...] = (), steps: int = 1) -> Rollout:
    """Return episodes that only say which group they are of and which of them got no verdict."""
    rollout = Rollout.of_demonstrations(
        torch.zeros(len(groups), steps),
        torch.zeros(len(groups), steps, dtype=torch.int64),
        torch.ones(len(groups), steps, dtype=torch.bool),
    )
    rollout.groups = torch.tensor(groups)
    rollout.status[list(failed)] = ERROR
    return rollout


def grouped(sizes: list[int]) -> list[int]:
    return [group for group, size in enumerate(sizes) for _ in range(size)]


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def test_every_step_has_statistics_of_its_own() -> None:
    returns = torch.tensor([[0.0, 5.0], [2.0, 5.0]], dtype=torch.float64)
    assert group_std(returns, rollout_of([0, 0], steps=2))[0].tolist() == pytest.approx([math.sqrt(2), 0])
    assert not standardize_groups(returns, rollout_of([0, 0], steps=2))[:, 1].any()


@few
@given(sizes, st.data())
def test_equal_values_have_no_spread_exactly_whatever_the_value(sizes: list[int], data: st.DataObject) -> None:
    levels = data.draw(st.lists(numbers, min_size=len(sizes), max_size=len(sizes)))
    groups = grouped(sizes)
    for dtype in (torch.float32, torch.float64):
        returns = torch.tensor([[levels[group]] for group in groups], dtype=dtype)
        assert not group_std(returns, rollout_of(groups)).any()
        assert not standardize_groups(returns, rollout_of(groups)).any()
        constant = returns[:1].expand(len(groups), 3).contiguous()
        assert not whiten(constant, torch.ones_like(constant, dtype=torch.bool)).any()


@few
@given(sizes, st.data())
def test_a_group_knows_nothing_of_the_others(sizes: list[int], data: st.DataObject) -> None:
    """Uneven groups in any order of rows: each is what it would be alone, to the bit."""
    groups = data.draw(st.permutations(grouped(sizes)))
    returns = column(*data.draw(st.lists(numbers, min_size=len(groups), max_size=len(groups))))
    together = standardize_groups(returns, rollout_of(groups))
    assert torch.isfinite(together).all()
    for group in set(groups):
        rows = [i for i, other in enumerate(groups) if other == group]
        alone = standardize_groups(returns[rows], rollout_of([group] * len(rows)))
        assert torch.equal(together[rows], alone)


def test_one_step_and_none_are_whitened_to_zero() -> None:
    values = torch.tensor([[3.0, NAN]])
    assert whiten(values, ~values.isnan()).tolist() == [[0, 0]]
    assert whiten(values, torch.zeros(1, 2, dtype=torch.bool)).tolist() == [[0, 0]]


def test_a_mean_that_is_rounding_divides_nothing() -> None:
    cancels = column(0.3, -0.1, -0.2).float()
    assert not over_group_mean(cancels, rollout_of([0, 0, 0])).any()
    found = over_group_mean(column(1, 0, 0, 1), rollout_of([0, 0, 0, 0]))
    assert found[:, 0].tolist() == [1.0, -1.0, -1.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parts_that_cancel_in_every_group_leave_nothing(dtype: torch.dtype) -> None:
    rollout = rollout_of(grouped([4, 4, 3]))
    right = torch.rand(len(rollout), generator=torch.Generator().manual_seed(0), dtype=dtype)
    assert not standardize_parts([(right, 0.3), (0.1 - right, 0.3)], rollout).any()
    uneven = standardize_parts([(right, 0.3), (0.1 - right, 0.3 + 1e-4)], rollout)
    assert float(uneven.square().mean()) == pytest.approx(1, rel=1e-2)


# Weights and losses.


FUNCTIONS = (sequence_sum, sequence_mean, token_mean, partial(constant_length, length=7))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nothing_to_learn_from_weighs_nothing(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert not function(torch.zeros(3, 2, dtype=torch.bool)).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_weights_have_the_precision_of_the_rewards(dtype: torch.dtype) -> None:
    """Rounded to single precision, 1/N is 5e-8 off, and so is the whole gradient."""
    agent = make_agent()
    rollout = random_episodes(agent.policy, groups=3, size=3)
    rollout.rewards = rollout.rewards.to(dtype)
    weights = agent.prepare(rollout).weights
    assert weights.dtype == dtype
    assert weights[0, 0] == torch.ones((), dtype=dtype) / 9


def test_only_what_is_new_is_differentiated() -> None:
    new, old, other = (torch.full((1, 1), value, requires_grad=True) for value in (-1.0, -1.1, 0.5))
    for loss in (
        clipped_ratio(new, old, other, 0.2, 0.2) + policy_gradient(new, other),
        clipped_squared_error(new, old, other, 0.3) + squared_error(new, other),
    ):
        new.grad = None
        loss.sum().backward()
        assert new.grad is not None and old.grad is None and other.grad is None


def test_the_largest_values_and_those_equal_to_the_least_of_them() -> None:
    values, mask = torch.tensor([[3.0, 9.0, 1.0], [2.0, 2.0, torch.nan]]), torch.ones(2, 3, dtype=torch.bool)
    mask[0, 1] = mask[1, 2] = False
    assert largest(values, mask, 1).tolist() == [[True, False, False], [False, False, False]]
    assert largest(values, mask, 2).tolist() == [[True, False, False], [True, True, False]]
    assert torch.equal(largest(values, mask, 99), mask)
    assert not largest(values, torch.zeros_like(mask), 3).any()


@pytest.mark.parametrize("mode", MODES)
def test_ratios_beyond_all_numbers_are_bounded(mode: str) -> None:
    log_pi, log_mu = torch.tensor([[0.0, 0.0], [-900.0, -900.0]]), torch.tensor([[-900.0, -900.0], [0.0, 0.0]])
    found = importance_weights(log_pi, log_mu, torch.ones(2, 2, dtype=torch.bool), mode, 0.0, 3.0)
    assert found[0].tolist() == ([3, 3] if mode.endswith("truncate") else [0, 0])
    assert found[1].tolist() == [0, 0]
