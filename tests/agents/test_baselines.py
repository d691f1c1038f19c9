"""Baselines at the edge: groups of one, certainty, failed verdicts; the running mean and score norms by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from agents.estimators.baselines import (
    BASELINES,
    RunningMean,
    group_mean,
    leave_one_out,
    length_weighted,
    optimal_token,
    value,
)
from agents.policies.choosing import score_norms
from agents.rollout import Rollout

OF_OTHERS = (leave_one_out, length_weighted, optimal_token)

RETURNS = torch.tensor([[1.0, 3.0], [5.0, 5.0], [0.0, 1.0], [9.0, 7.0], [4.0, 2.0]], dtype=torch.float64)
GROUPS = [8, 3, 8, 3, 8]


def rollout_of(
    groups: list[int], steps: int = 2, valid: list[bool] | None = None, lengths: list[int] | None = None
) -> Rollout:
    n = len(groups)
    mask = torch.arange(steps) < torch.tensor(lengths or [steps] * n)[:, None]
    made = Rollout.of_demonstrations(torch.zeros(n), torch.zeros(n, steps), mask)
    valid_rows = torch.tensor(valid if valid is not None else [True] * n)
    norms = torch.ones(n, steps, dtype=torch.float64)
    return replace(made, groups=torch.tensor(groups), status=(~valid_rows).long(), score_norms=norms)


def test_the_value_is_the_critics_and_takes_no_gradient() -> None:
    values = torch.rand(5, 2, requires_grad=True)
    found = value(RETURNS, replace(rollout_of(GROUPS), values=values))
    assert torch.equal(found, values)
    assert not found.requires_grad
    with pytest.raises(ValueError, match="needs a policy with a critic"):
        value(RETURNS, rollout_of(GROUPS))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("baseline", [length_weighted, optimal_token])
def test_an_episode_has_no_part_in_its_own_baseline(baseline: Callable[..., torch.Tensor], seed: int) -> None:
    """Bit for bit: a difference of the group's sum and the episode's own would leave rounding errors of it."""
    generator, mine = torch.Generator().manual_seed(seed), torch.arange(5)[:, None] == 4
    returns, norms = (torch.rand(5, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    rollout = replace(
        rollout_of(GROUPS, 3, [True, True, seed % 2 == 0, True, True], [1, 2, 3, 3, 2]), score_norms=norms
    )
    changed = replace(rollout, score_norms=norms.where(~mine, 1e12))
    assert torch.equal(baseline(returns.where(~mine, -1e6), changed)[-1], baseline(returns, rollout)[-1])


def test_a_group_of_one_is_defined() -> None:
    rollout = rollout_of([0, 1, 2, 3, 4])
    assert not any(baseline(RETURNS, rollout).any() for baseline in OF_OTHERS)
    assert torch.equal(group_mean(RETURNS, rollout), RETURNS)


def test_if_the_others_chose_with_certainty_their_plain_mean_is_taken() -> None:
    rollout = rollout_of(GROUPS)
    certain = replace(rollout, score_norms=torch.zeros(5, 2, dtype=torch.float64))
    assert torch.equal(optimal_token(RETURNS, certain), leave_one_out(RETURNS, rollout))
    certain.score_norms[0] = 1.0  # the first was not certain: its baseline is the others', theirs is its return
    found = optimal_token(RETURNS, certain)
    assert found[[0, 2, 4]].tolist() == [[2.0, 1.5], [1.0, 3.0], [1.0, 3.0]]


def test_a_rollout_without_score_norms_is_refused() -> None:
    with pytest.raises(ValueError, match="has no score_norms: they need an agent with uses_score_norms"):
        optimal_token(RETURNS, replace(rollout_of(GROUPS), score_norms=None))


@pytest.mark.parametrize("spread", [1.0, 30.0])
def test_a_score_norm_is_that_of_the_gradient_in_the_logits(spread: float) -> None:
    logits = spread * torch.randn(50, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    actions = torch.arange(50) % 7
    logits.requires_grad_()
    log_probs = logits.log_softmax(-1)
    chosen = log_probs.gather(1, actions[:, None]).sum()
    wanted = torch.autograd.grad(chosen, logits)[0].square().sum(1)
    torch.testing.assert_close(score_norms(log_probs.detach(), actions), wanted, rtol=1e-9, atol=0)


def test_a_score_norm_keeps_its_digits_near_certainty() -> None:
    log_probs = torch.tensor([[0.0, -30.0, -40.0]]).log_softmax(-1)  # float32: 1 - 2π + Σ π² is 0 there, or negative
    rest = torch.tensor([-30.0, -40.0], dtype=torch.float64).exp()
    wanted = rest.sum().square() + rest.square().sum()
    found = score_norms(log_probs, torch.tensor([0]))
    assert float(found) == pytest.approx(float(wanted), rel=1e-5)
    assert float(score_norms(log_probs, torch.tensor([2]))) == pytest.approx(2.0, abs=1e-6)


@pytest.mark.parametrize("name", [name for name in BASELINES if name != "value"])
def test_no_verdict_at_all_is_defined_where_there_is_a_row_to_teach(name: str) -> None:
    rollout = rollout_of(GROUPS, valid=[False] * 5)
    baseline = BASELINES[name]()
    assert baseline(RETURNS, rollout).shape == RETURNS.shape
    after = baseline(RETURNS, rollout_of(GROUPS))
    assert after.isfinite().all()


def test_the_running_mean_by_hand() -> None:
    baseline = RunningMean(decay=0.5)
    rollout = rollout_of(GROUPS)
    assert not baseline(RETURNS, rollout).any()  # nothing known: 0, and then the mean itself
    assert baseline.mean.tolist() == pytest.approx([3.8, 3.6])
    assert baseline(torch.full_like(RETURNS, 1.0), rollout).tolist() == [pytest.approx([3.8, 3.6])] * 5
    assert baseline.mean.tolist() == pytest.approx([2.4, 2.3])


def test_returns_that_are_not_finite_do_not_enter_the_running_mean() -> None:
    baseline, rollout, returns = RunningMean(), rollout_of(GROUPS), RETURNS.clone()
    baseline(returns, rollout)
    before = baseline.mean.clone()
    for bad in (torch.nan, torch.inf):
        returns[1, 1] = bad
        baseline(returns, rollout)
        assert torch.equal(baseline.mean, before)


def test_the_running_mean_grows_with_the_longest_episode() -> None:
    baseline = RunningMean(decay=0.5)
    baseline(torch.tensor([[1.0, 3.0], [3.0, 5.0]]), rollout_of([0, 0]))
    assert baseline.mean.tolist() == [2.0, 4.0]
    longer = torch.tensor([[2.0, 4.0, 6.0, 8.0]])
    assert baseline(longer, rollout_of([0], steps=4)).tolist() == [[2.0, 4.0, 4.0, 4.0]]  # its last entry stands on
    assert baseline.mean.tolist() == [2.0, 4.0, 5.0, 6.0]
    shorter = torch.tensor([[4.0], [6.0]])  # ended episodes keep their last return
    assert baseline(shorter, rollout_of([0, 0], steps=1)).tolist() == [[2.0], [2.0]]
    assert baseline.mean.tolist() == [3.5, 4.5, 5.0, 5.5]


def test_the_running_mean_ignores_failed_verdicts() -> None:
    baseline, alone = RunningMean(), RunningMean()
    rollout = rollout_of(GROUPS, valid=[True, False, True, False, True])
    baseline(torch.where(rollout.ok[:, None], RETURNS, torch.nan), rollout)
    alone(RETURNS[rollout.ok], rollout.select(rollout.ok))
    assert torch.equal(baseline.mean, alone.mean)
    before = baseline.mean.clone()
    baseline(RETURNS, rollout_of(GROUPS, valid=[False] * 5))
    assert torch.equal(baseline.mean, before)
