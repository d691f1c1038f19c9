"""Returns, by hand and against plain loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.estimators.returns import episode_return, hold_last, return_to_go

NAN = torch.nan
REWARDS = torch.tensor([[1.0, 2.0, 4.0], [8.0, -2.0, NAN], [3.0, NAN, NAN], [NAN, NAN, NAN]])
MASK = torch.tensor([[True, True, True], [True, True, False], [True, False, False], [False, False, False]])

reproducible = settings(deadline=None, derandomize=True, max_examples=60)
episode = st.lists(st.integers(-8, 8), min_size=0, max_size=6)
rollouts = st.lists(episode, min_size=1, max_size=5)


def pad(rows: list[list[int]], fill: float = NAN) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rewards and mask [N, T], T at least 1."""
    steps = max(1, *map(len, rows))
    values = torch.tensor([[*map(float, row), *[fill] * (steps - len(row))] for row in rows], dtype=torch.float64)
    return values, torch.tensor([[t < len(row) for t in range(steps)] for row in rows])


def test_return_to_go_by_hand() -> None:
    half = [[3.0, 4.0, 4.0], [7.0, -2.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert return_to_go(REWARDS, MASK, gamma=0.5).tolist() == half
    whole = [[7.0, 6.0, 4.0], [6.0, -2.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert return_to_go(REWARDS, MASK).tolist() == whole
    none = [[1.0, 2.0, 4.0], [8.0, -2.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert return_to_go(REWARDS, MASK, gamma=0.0).tolist() == none


def test_episode_return_by_hand() -> None:
    half = [[3.0, 3.0, 3.0], [7.0, 7.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert episode_return(REWARDS, MASK, gamma=0.5).tolist() == half
    whole = [[7.0, 7.0, 7.0], [6.0, 6.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert episode_return(REWARDS, MASK).tolist() == whole


def test_hold_last_by_hand() -> None:
    values = torch.tensor([[3.0, 4.0, 4.0], [7.0, -2.0, NAN], [3.0, NAN, NAN]])
    assert hold_last(values, MASK[:3]).tolist() == [[3.0, 4.0, 4.0], [7.0, -2.0, -2.0], [3.0, 3.0, 3.0]]


@reproducible
@given(rollouts, st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_return_to_go_against_a_plain_loop(rows: list[list[int]], gamma: float) -> None:
    rewards, mask = pad(rows)
    found = return_to_go(rewards, mask, gamma)
    for i, row in enumerate(rows):
        for t in range(rewards.shape[1]):
            wanted = sum(gamma**k * reward for k, reward in enumerate(row[t:]))
            assert float(found[i, t]) == pytest.approx(wanted, abs=1e-12)


@reproducible
@given(rollouts, st.sampled_from([0.5, 0.9, 1.0]))
def test_the_episode_return_is_the_first_return_to_go_at_every_step(rows: list[list[int]], gamma: float) -> None:
    rewards, mask = pad(rows)
    first = return_to_go(rewards, mask, gamma)[:, :1]
    assert torch.equal(episode_return(rewards, mask, gamma), (first * mask).double())


@reproducible
@given(rollouts, st.integers(1, 3), st.sampled_from([0.5, 1.0]))
def test_padding_changes_no_return(rows: list[list[int]], more: int, gamma: float) -> None:
    rewards, mask = pad(rows)
    longer = torch.nn.functional.pad(rewards, (0, more), value=NAN), torch.nn.functional.pad(mask, (0, more))
    for function in (return_to_go, episode_return):
        found = function(*longer, gamma)
        assert torch.equal(found[:, :-more], function(rewards, mask, gamma))
        assert not found[:, -more:].any()


@reproducible
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
