"""Importance weights and the mask of bad episodes, against scalar loops."""

from __future__ import annotations

import math

import pytest
import torch
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from agents.estimators.mismatch import MODES, importance_weights, off_policy_mask

few = drawn(20)
bounds = st.sampled_from([(0.0, 3.0), (0.5, 1.5), (0.0, None), (0.9, 1.0)])
LENGTHS = (5, 3, 1, 0)


def tables(seed: int, scale: float = 0.5) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return log π, log μ and the mask [4, 5] of episodes of unequal length; NaN after their end."""
    generator = torch.Generator().manual_seed(seed)
    log_pi = torch.randn(4, 5, generator=generator, dtype=torch.float64) - 2
    log_mu = log_pi + scale * torch.randn(4, 5, generator=generator, dtype=torch.float64)
    mask = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
    return log_pi.where(mask, torch.nan), log_mu.where(mask, torch.nan), mask


def by_hand(log_pi: torch.Tensor, log_mu: torch.Tensor, mode: str, low: float, high: float | None) -> list[list[float]]:
    """Return TRL's `vllm_importance_sampling_mode` of this name, step by step, of the steps that exist."""
    level, bound = mode.split("-")
    out = []
    for i, length in enumerate(LENGTHS):
        steps = [math.exp(float(log_pi[i, t])) / math.exp(float(log_mu[i, t])) for t in range(length)]
        ratios = [math.prod(steps)] * length if level == "sequence" else steps
        most = math.inf if high is None else high
        if bound == "truncate":
            out.append([max(low, min(most, ratio)) for ratio in ratios])
        else:
            out.append([ratio if low <= ratio <= most else 0.0 for ratio in ratios])
    return out


@few
@given(st.integers(0, 999), st.sampled_from(list(MODES)), bounds)
def test_the_four_modes_against_a_plain_loop(seed: int, mode: str, ends: tuple[float, float | None]) -> None:
    log_pi, log_mu, mask = tables(seed)
    found = importance_weights(log_pi, log_mu, mask, mode, *ends)
    for row, wanted in zip(found.tolist(), by_hand(log_pi, log_mu, mode, *ends), strict=True):
        assert row[: len(wanted)] == pytest.approx(wanted, rel=1e-12)
    assert found.isfinite().all()


@pytest.mark.parametrize("mode", MODES)
def test_where_acting_and_training_agree_the_weight_is_one(mode: str) -> None:
    log_pi, log_mu, mask = tables(0, scale=1e-5)
    assert (importance_weights(log_pi, log_pi, mask, mode, 0.0, 3.0) == 1).all()
    assert (importance_weights(log_pi, log_mu, mask, mode, 0.0, 3.0) - 1).abs().max() < 1e-4


@pytest.mark.parametrize("mode", MODES)
def test_a_weight_is_a_constant(mode: str) -> None:
    log_pi, log_mu, mask = (x.requires_grad_() if x.is_floating_point() else x for x in tables(1))
    assert not importance_weights(log_pi, log_mu, mask, mode, 0.0, 3.0).requires_grad


@pytest.mark.parametrize("mode", MODES)
def test_ratios_beyond_all_numbers_are_bounded(mode: str) -> None:
    log_pi, log_mu = torch.tensor([[0.0, 0.0], [-900.0, -900.0]]), torch.tensor([[-900.0, -900.0], [0.0, 0.0]])
    found = importance_weights(log_pi, log_mu, torch.ones(2, 2, dtype=torch.bool), mode, 0.0, 3.0)
    assert found[0].tolist() == ([3, 3] if mode.endswith("truncate") else [0, 0])
    assert found[1].tolist() == [0, 0]


@few
@given(st.integers(0, 999), st.sampled_from([0.0, 0.1, 0.3]))
def test_the_mask_of_bad_episodes_against_a_plain_loop(seed: int, most: float) -> None:
    log_pi, log_old, mask = tables(seed)
    advantages = torch.randn(4, 1, generator=torch.Generator().manual_seed(seed)).expand(4, 5)
    found = off_policy_mask(log_pi, log_old, advantages, mask, most)
    for i, length in enumerate(LENGTHS):
        fall = sum(float(log_old[i, t] - log_pi[i, t]) for t in range(length)) / max(length, 1)
        assert found[i].tolist() == [not (float(advantages[i, 0]) < 0 and fall > most)] * 5


def test_good_episodes_stay_however_unlikely_they_have_become() -> None:
    old, new = torch.full((3, 2), -1.0), torch.tensor([[-9.0, -9.0], [-9.0, -9.0], [-1.0, -1.1]])
    advantages, mask = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [-1.0, -1.0]]), torch.ones(3, 2, dtype=torch.bool)
    assert off_policy_mask(new, old, advantages, mask, 0.2)[:, 0].tolist() == [True, False, True]
