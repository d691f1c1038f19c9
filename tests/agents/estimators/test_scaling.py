"""Scaling by standard deviations: known answers, exact zeros, and groups that do not know of each other."""

from __future__ import annotations

import math

import pytest
import torch
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from agents import Rollout
from agents.estimators.scaling import group_std, over_group_mean, standardize_groups, standardize_parts, whiten
from agents.rollout import ERROR

NAN = torch.nan
few = drawn(20)
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


def test_standardize_groups_by_hand() -> None:
    found = standardize_groups(column(1, 0, 3, 0, 3, 7), rollout_of([5, 2, 5, 2, 2, 9]))
    two, three = math.sqrt(2) + 1e-4, math.sqrt(3) + 1e-4
    assert found[:, 0].tolist() == pytest.approx([-1 / two, -1 / three, 1 / two, -1 / three, 2 / three, 0], abs=1e-12)
    wide = standardize_groups(column(0, 1), rollout_of([0, 0]), eps=1.0)
    assert wide[:, 0].tolist() == pytest.approx([-0.5 / (math.sqrt(0.5) + 1), 0.5 / (math.sqrt(0.5) + 1)])


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


@pytest.mark.parametrize("worth", [0.0, 100.0, NAN])
def test_episodes_without_a_verdict_are_in_no_groups_statistics(worth: float) -> None:
    groups, failed = [0, 0, 0, 1, 1, 2], (1, 4, 5)
    found = standardize_groups(column(1, worth, 3, 7, worth, worth), rollout_of(groups, failed))
    judged = [0, 2, 3]
    alone = standardize_groups(column(1, 3, 7), rollout_of([0, 0, 1]))
    assert torch.equal(found[judged], alone)
    spread = group_std(column(1, worth, 3, 7, worth, worth), rollout_of(groups, failed))
    assert spread[:, 0].tolist() == pytest.approx([math.sqrt(2)] * 3 + [0] * 3)


# Whitening.


def test_whiten_by_hand() -> None:
    """Over all steps that count: 1, 2, 4, 5 has mean 3 and, divided by their number, variance 10/4."""
    values = torch.tensor([[1.0, 2.0, NAN], [4.0, NAN, NAN], [5.0, NAN, NAN]], dtype=torch.float64)
    spread = math.sqrt(2.5)
    found = whiten(values, ~values.isnan(), eps=0.0)
    by_hand = [[-2 / spread, -1 / spread, 0], [1 / spread, 0, 0], [2 / spread, 0, 0]]
    assert found.tolist() == [pytest.approx(row) for row in by_hand]
    doubled = whiten(values, ~values.isnan(), eps=spread)
    torch.testing.assert_close(doubled, found / 2)


@few
@given(st.integers(0, 99), st.integers(0, 3))
def test_whitened_values_have_mean_zero_and_spread_one_and_padding_changes_nothing(seed: int, more: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(4, 5, generator=generator) < 0.7
    mask[0, :2] = True
    values = torch.randn(4, 5, generator=generator, dtype=torch.float64).where(mask, NAN)
    found = whiten(values, mask)
    assert float(found[mask].mean()) == pytest.approx(0, abs=1e-9)
    assert float(found[mask].std(correction=0)) == pytest.approx(1)
    assert not found[~mask].any()
    longer = torch.nn.functional.pad(values, (0, more), value=NAN), torch.nn.functional.pad(mask, (0, more))
    assert torch.equal(whiten(*longer)[:, :5], found)
    torch.testing.assert_close(whiten(2 * values - 9, mask), found)


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
