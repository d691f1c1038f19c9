"""Gates, masks and tapers, against the papers' formulas in scalar loops and against their own gradients."""

from __future__ import annotations

import math

import pytest
import torch
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from agents.estimators.gates import covariance, largest, moved_too_far, ratio, soft_gate, taper

few = drawn(20)
MASK = torch.arange(5) < torch.tensor([5, 3, 1, 0])[:, None]


def tables(seed: int) -> list[torch.Tensor]:
    """Return log π, log π_old and advantages [4, 5]."""
    generator = torch.Generator().manual_seed(seed)
    log_pi, noise, advantages = (torch.randn(4, 5, generator=generator, dtype=torch.float64) for _ in range(3))
    return [log_pi - 3, log_pi - 3 + 0.5 * noise, advantages]


def steps() -> list[list[int]]:
    return torch.cartesian_prod(torch.arange(4), torch.arange(5)).tolist()


@few
@given(st.integers(0, 999), st.sampled_from([(1.0, 1.05), (0.3, 5.0)]))
def test_the_soft_gate_is_the_papers(seed: int, taus: tuple[float, float]) -> None:
    log_pi, old, advantages = tables(seed)
    log_pi.requires_grad_()
    found = soft_gate(log_pi, old, advantages, *taus)
    found.sum().backward()
    for i, t in steps():
        rho, a = math.exp(float(log_pi[i, t].detach() - old[i, t])), float(advantages[i, t])
        tau = taus[0] if a > 0 else taus[1]
        gate = 1 / (1 + math.exp(-tau * (rho - 1)))
        assert float(found[i, t].detach()) == pytest.approx(4 / tau * gate * a, abs=1e-12)
        assert float(log_pi.grad[i, t]) == pytest.approx(4 * gate * (1 - gate) * rho * a, abs=1e-12)


def test_at_ratio_one_gate_and_ratio_are_the_policy_gradient() -> None:
    log_pi, _, advantages = tables(0)
    for surrogate in (lambda x: soft_gate(x, log_pi, advantages, 2.0, 0.5), lambda x: ratio(x, log_pi, advantages)):
        ours = log_pi.clone().requires_grad_()
        surrogate(ours).sum().backward()
        torch.testing.assert_close(ours.grad, advantages, rtol=0, atol=1e-14)


def test_the_mask_looks_at_probabilities_and_the_side_of_the_advantage() -> None:
    """A rare action may double; a likely one may not move by 0.2 to where its advantage points."""
    old = torch.tensor([[0.01, 0.5, 0.5, 0.5, 0.5, 0.5]], dtype=torch.float64)
    new = torch.tensor([[0.05, 0.75, 0.75, 0.25, 0.25, 0.69]], dtype=torch.float64)
    advantages = torch.tensor([[1.0, 1.0, -1.0, -2.0, 2.0, 0.1]], dtype=torch.float64)
    assert moved_too_far(new.log(), old.log(), advantages, 0.2)[0].tolist() == [False, True, False, True, False, False]
    assert not moved_too_far(new.log(), old.log(), 0 * advantages, 0.2).any()


@few
@given(st.integers(0, 999))
def test_the_taper_is_the_papers_and_a_constant(seed: int) -> None:
    log_pi, old, advantages = tables(seed)
    advantages = advantages[:, :1].expand(4, 5)
    log_pi, old = log_pi.where(MASK, torch.nan).requires_grad_(), old.where(MASK, torch.nan)
    found = taper(log_pi, old, advantages, MASK)
    assert not found.requires_grad
    for i, length in enumerate(MASK.sum(1).tolist()):
        product = math.prod(math.exp(float(log_pi[i, t].detach() - old[i, t])) for t in range(length))
        wanted = 1.0 if float(advantages[i, 0]) >= 0 else min(1.0, product)
        assert found[i].tolist() == pytest.approx([wanted] * 5, rel=1e-12)


@few
@given(st.integers(0, 999))
def test_the_covariance_of_each_step_against_a_plain_loop(seed: int) -> None:
    log_pi, _, advantages = tables(seed)
    counted = [(i, t) for i, t in steps() if MASK[i, t]]
    mean_l = sum(float(log_pi[i, t]) for i, t in counted) / len(counted)
    mean_a = sum(float(advantages[i, t]) for i, t in counted) / len(counted)
    found = covariance(log_pi.where(MASK, torch.nan), advantages.where(MASK, torch.nan), MASK)
    for i, t in counted:
        wanted = (float(log_pi[i, t]) - mean_l) * (float(advantages[i, t]) - mean_a)
        assert float(found[i, t]) == pytest.approx(wanted, abs=1e-12)


def test_the_largest_values_and_those_equal_to_the_least_of_them() -> None:
    values, mask = torch.tensor([[3.0, 9.0, 1.0], [2.0, 2.0, torch.nan]]), torch.ones(2, 3, dtype=torch.bool)
    mask[0, 1] = mask[1, 2] = False
    assert largest(values, mask, 1).tolist() == [[True, False, False], [False, False, False]]
    assert largest(values, mask, 2).tolist() == [[True, False, False], [True, True, False]]
    assert torch.equal(largest(values, mask, 99), mask)
    assert not largest(values, torch.zeros_like(mask), 3).any()
