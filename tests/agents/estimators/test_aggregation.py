"""How steps are added up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st
from tabular import make_agent, random_episodes

from agents.estimators.aggregation import constant_length, sequence_mean, sequence_sum, token_mean

few = drawn(20)
FUNCTIONS = (sequence_sum, sequence_mean, token_mean, partial(constant_length, length=7))
MASK = torch.tensor([[True, True, True], [True, False, False], [False, False, False], [True, True, False]])


def mask_of(lengths: list[int]) -> torch.Tensor:
    return torch.arange(max(1, *lengths)) < torch.tensor(lengths)[:, None]


def test_by_hand() -> None:
    third = [[1 / 3] * 3, [1 / 3, 0, 0], [0, 0, 0], [1 / 3, 1 / 3, 0]]
    assert sequence_sum(MASK).tolist() == [pytest.approx(row) for row in third]
    sixth = [[1 / 6] * 3, [1 / 6, 0, 0], [0, 0, 0], [1 / 6, 1 / 6, 0]]
    assert token_mean(MASK).tolist() == [pytest.approx(row) for row in sixth]
    ninth = [[1 / 9] * 3, [1 / 3, 0, 0], [0, 0, 0], [1 / 6, 1 / 6, 0]]
    assert sequence_mean(MASK).tolist() == [pytest.approx(row) for row in ninth]
    fifteenth = [[1 / 15] * 3, [1 / 15, 0, 0], [0, 0, 0], [1 / 15, 1 / 15, 0]]
    assert constant_length(MASK, 5).tolist() == [pytest.approx(row) for row in fifteenth]


@few
@given(st.lists(st.integers(0, 5), min_size=2, max_size=6).filter(any), st.integers(1, 3), st.integers(1, 3))
def test_padding_and_empty_rows_change_no_weight(lengths: list[int], steps: int, rows: int) -> None:
    mask = mask_of(lengths)
    larger = torch.nn.functional.pad(mask, (0, steps, 0, rows))
    for function in FUNCTIONS:
        assert torch.equal(function(larger)[:-rows, :-steps], function(mask))


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
