"""Returns, by hand and against plain loops."""

from __future__ import annotations

import pytest
import torch
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from agents.estimators.returns import (
    discounted_sum,
    episode_return,
    generalized_advantage,
    hold_last,
    length_adaptive_lambda,
    overlong_penalty,
    return_to_go,
)

NAN = torch.nan
REWARDS = torch.tensor([[1.0, 2.0, 4.0], [8.0, -2.0, NAN], [3.0, NAN, NAN], [NAN, NAN, NAN]])
MASK = torch.tensor([[True, True, True], [True, True, False], [True, False, False], [False, False, False]])

few = drawn(20)
episode = st.lists(st.integers(-8, 8), min_size=0, max_size=6)
rollouts = st.lists(episode, min_size=1, max_size=5)


def pad(rows: list[list[int]], fill: float = NAN) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rewards and mask [N, T], T at least 1."""
    steps = max(1, *map(len, rows))
    values = torch.tensor([[*map(float, row), *[fill] * (steps - len(row))] for row in rows], dtype=torch.float64)
    return values, torch.tensor([[t < len(row) for t in range(steps)] for row in rows])


def test_discounted_sum_by_hand() -> None:
    half = [[1.0, 2.5, 5.25], [8.0, 2.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert discounted_sum(REWARDS, MASK, gamma=0.5).tolist() == half
    whole = [[1.0, 3.0, 7.0], [8.0, 6.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert discounted_sum(REWARDS, MASK).tolist() == whole


@few
@given(rollouts, st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_return_to_go_against_a_plain_loop(rows: list[list[int]], gamma: float) -> None:
    rewards, mask = pad(rows)
    found = return_to_go(rewards, mask, gamma)
    for i, row in enumerate(rows):
        for t in range(rewards.shape[1]):
            wanted = sum(gamma**k * reward for k, reward in enumerate(row[t:]))
            assert float(found[i, t]) == pytest.approx(wanted, abs=1e-12)


@few
@given(rollouts, st.sampled_from([0.5, 0.9, 1.0]))
def test_the_episode_return_is_the_first_return_to_go_in_every_cell(rows: list[list[int]], gamma: float) -> None:
    rewards, mask = pad(rows)
    first = return_to_go(rewards, mask, gamma)[:, :1]
    assert torch.equal(episode_return(rewards, mask, gamma), first.expand(rewards.shape))


@few
@given(st.lists(st.lists(st.integers(-8, 8), min_size=1, max_size=6), min_size=1, max_size=5))
def test_hold_last_keeps_what_is_there_and_repeats_the_last(rows: list[list[int]]) -> None:
    values, mask = pad(rows)
    held = hold_last(values, mask)
    assert torch.equal(held[mask], values[mask])
    assert all(set(held[i, len(row) :].tolist()) <= {row[-1]} for i, row in enumerate(rows))


def test_returns_keep_the_precision_and_the_rewards() -> None:
    rewards = REWARDS.clone().double()
    for gamma in (0.5, 1.0):
        assert return_to_go(rewards, MASK, gamma).dtype == torch.float64
        assert return_to_go(rewards.float(), MASK, gamma).dtype == torch.float32
    assert torch.equal(rewards.isnan(), REWARDS.isnan())


# Generalized advantages.


def one_step_errors(rewards: list[int], values: list[float], gamma: float, final: float) -> list[float]:
    following = [*values, final][1:]
    return [r + gamma * v_next - v for r, v, v_next in zip(rewards, values, following, strict=True)]


def drawn_values(rows: list[list[int]], seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return rewards, values and mask [N, T] and, for every other episode, a final value [N]; NaN in masked cells."""
    rewards, mask = pad(rows)
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rewards.shape, generator=generator, dtype=torch.float64).where(mask, NAN)
    finals = torch.randn(len(rows), generator=generator, dtype=torch.float64)
    return rewards, values, mask, finals * (torch.arange(len(rows)) % 2)


discounts = st.sampled_from([0.0, 0.5, 0.9, 1.0])


@few
@given(rollouts, discounts, discounts, st.integers(0, 99))
def test_generalized_advantage_against_its_definition(
    rows: list[list[int]], gamma: float, gae_lambda: float, seed: int
) -> None:
    rewards, values, mask, finals = drawn_values(rows, seed)
    found = generalized_advantage(rewards, values, mask, gamma, gae_lambda, finals)
    assert not found[~mask].any()
    for i, row in enumerate(rows):
        errors = one_step_errors(row, values[i, : len(row)].tolist(), gamma, float(finals[i]))
        for t in range(len(row)):
            wanted = sum((gamma * gae_lambda) ** k * error for k, error in enumerate(errors[t:]))
            assert float(found[i, t]) == pytest.approx(wanted, abs=1e-12)


# The overlong penalty.


@few
@given(rollouts, st.integers(0, 99), st.sampled_from([1.0, 0.9]), st.booleans())
def test_each_episode_may_have_its_own_lambda(rows: list[list[int]], seed: int, gamma: float, column: bool) -> None:
    rewards, mask = pad(rows)
    generator = torch.Generator().manual_seed(seed)
    values, finals = torch.randn(rewards.shape, generator=generator).double(), torch.randn(len(rows)).double()
    lambdas = torch.rand(len(rows), generator=generator).double().round(decimals=1)  # 0 and 1 among them
    found = generalized_advantage(rewards, values, mask, gamma, lambdas[:, None] if column else lambdas, finals)
    for row, own in enumerate(lambdas.tolist()):
        one = slice(row, row + 1)
        alone = generalized_advantage(rewards[one], values[one], mask[one], gamma, own, finals[one])
        torch.testing.assert_close(found[one], alone, rtol=0, atol=1e-12)


def test_lambdas_do_not_change_the_precision() -> None:
    ones, mask = torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool)
    assert generalized_advantage(ones, ones, mask, 1.0, torch.tensor([0.5, 1.0]).double()).dtype == torch.float32


def test_the_length_adaptive_lambda_by_hand() -> None:
    lengths = torch.tensor([0, 1, 20, 21, 40, 2000])
    wanted = [0.0, 0.0, 0.0, 1 - 20 / 21, 0.5, 0.99]
    assert length_adaptive_lambda(lengths, 0.05).tolist() == pytest.approx(wanted, abs=1e-15)
    assert length_adaptive_lambda(lengths, 1e9)[1:].min() > 1 - 1e-8


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
