"""Baselines, by hand and against plain loops."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from agents.estimators.baselines import (
    BASELINES,
    RunningMean,
    batch_mean,
    group_mean,
    leave_one_out,
    length_weighted,
    none,
    optimal_token,
    value,
)
from agents.estimators.returns import hold_last
from agents.policies.choosing import score_norms
from agents.rollout import Rollout

few = drawn(20)
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


@st.composite
def cases(draw: st.DrawFn) -> tuple[torch.Tensor, Rollout]:
    """Return returns [N, T] and a rollout whose groups interleave and some of whose verdicts failed."""
    n, steps = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    numbers = st.floats(-10, 10, width=32)
    returns = [draw(st.lists(numbers, min_size=steps, max_size=steps)) for _ in range(n)]
    groups = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    valid = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    return torch.tensor(returns, dtype=torch.float64), rollout_of(groups, steps, valid)


@st.composite
def played_cases(draw: st.DrawFn) -> tuple[torch.Tensor, Rollout, torch.Tensor, torch.Tensor]:
    """Return the same with episodes of different lengths, with π [N, T, A] at every step and the chosen actions."""
    _, plain = draw(cases())
    n, steps = plain.mask.shape
    lengths = draw(st.lists(st.integers(1, steps), min_size=n, max_size=n))
    rollout = rollout_of(plain.groups.tolist(), steps, plain.ok.tolist(), lengths)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    scale = draw(st.sampled_from([0.1, 1.0, 8.0]))  # from nearly uniform to nearly certain
    pi = (scale * torch.randn(n, steps, 4, generator=generator, dtype=torch.float64)).softmax(-1)
    actions = torch.randint(4, (n, steps), generator=generator)
    returns = hold_last(torch.randn(n, steps, generator=generator, dtype=torch.float64), rollout.mask)
    norms = score_norms(pi.log(), actions).where(rollout.mask, torch.nan)
    return returns, replace(rollout, score_norms=norms), pi, actions


def mean(rows: list[torch.Tensor], otherwise: float = 0.0) -> torch.Tensor:
    return torch.stack(rows).mean(0) if rows else torch.tensor(otherwise)


def test_the_value_is_the_critics_and_takes_no_gradient() -> None:
    values = torch.rand(5, 2, requires_grad=True)
    found = value(RETURNS, replace(rollout_of(GROUPS), values=values))
    assert torch.equal(found, values)
    assert not found.requires_grad
    with pytest.raises(ValueError, match="needs a policy with a critic"):
        value(RETURNS, rollout_of(GROUPS))


@few
@given(played_cases())
def test_the_weighted_means_against_their_formulas(
    case: tuple[torch.Tensor, Rollout, torch.Tensor, torch.Tensor],
) -> None:
    """Those of the papers, over the other episodes: Σ l R / Σ l and Σ G W / Σ W, W = Σ (1 - 2π + Σ_v π²)."""
    returns, rollout, pi, actions = case
    by_length, by_norm = length_weighted(returns, rollout), optimal_token(returns, rollout)
    lengths, n = rollout.mask.sum(1).tolist(), len(returns)
    for i in range(n):
        others = [j for j in range(n) if j != i and rollout.ok[j] and rollout.groups[j] == rollout.groups[i]]
        for t in range(lengths[i]) if rollout.ok[i] and others else ():
            weights = dict.fromkeys(others, 0.0)
            for j in others:
                for s in range(min(t + 1, lengths[j])):
                    weights[j] += float(1 - 2 * pi[j, s, actions[j, s]] + pi[j, s].square().sum())
            gains = {j: float(returns[j, min(t, lengths[j] - 1)]) for j in others}
            wanted = sum(gains[j] * lengths[j] for j in others) / sum(lengths[j] for j in others)
            assert float(by_length[i, t]) == pytest.approx(wanted, abs=1e-12)
            wanted = sum(gains[j] * weights[j] for j in others) / sum(weights.values())
            if sum(weights.values()) > 1e-3:  # below, 1 - 2π + Σ π² has lost digits
                assert float(by_norm[i, t]) == pytest.approx(wanted, abs=1e-12)


@few
@given(played_cases(), st.floats(-1e6, 1e6), st.floats(0, 1e12))
def test_an_episode_has_no_part_in_its_own_baseline(
    case: tuple[torch.Tensor, Rollout, torch.Tensor, torch.Tensor], gain: float, norm: float
) -> None:
    """Bit for bit: a difference of the group's sum and the episode's own would leave rounding errors of it."""
    returns, rollout, _, _ = case
    others = torch.arange(len(returns))[:, None] < len(returns) - 1
    changed = replace(rollout, score_norms=rollout.score_norms.where(others, norm))
    for baseline in (length_weighted, optimal_token):
        before, after = baseline(returns, rollout), baseline(returns.where(others, gain), changed)
        assert torch.equal(after[-1], before[-1])


@few
@given(cases())
def test_means_against_a_plain_loop(case: tuple[torch.Tensor, Rollout]) -> None:
    returns, rollout = case
    assert not none(returns, rollout).any()
    judged = torch.arange(len(returns))[rollout.ok].tolist()
    for i in judged:
        group = [j for j in judged if rollout.groups[j] == rollout.groups[i]]
        for baseline, rows in (
            (batch_mean, judged),
            (group_mean, group),
            (leave_one_out, [j for j in group if j != i]),
        ):
            wanted = mean([returns[j] for j in rows]).expand(returns.shape[1])
            found = baseline(returns, rollout)[i]
            torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12, check_dtype=False)


@few
@given(cases(), st.floats(-100, 100, width=32))
def test_a_group_does_not_feel_other_groups(case: tuple[torch.Tensor, Rollout], shift: float) -> None:
    returns, rollout = case
    ours = rollout.groups == rollout.groups[0]
    taught = ours & rollout.ok
    changed = torch.where(ours[:, None], returns, returns * 2 + shift)
    for baseline in (group_mean, *OF_OTHERS):
        found = baseline(returns, rollout)[taught]
        assert torch.equal(found, baseline(changed, rollout)[taught])
        assert torch.equal(found, baseline(returns[ours], rollout.select(ours))[rollout.ok[ours]])


@few
@given(st.floats(-1e6, 1e6), st.integers(1, 9), st.integers(0, 2))
def test_equal_returns_are_their_own_baseline_bit_for_bit(reward: float, n: int, spare: int) -> None:
    returns = torch.full((n, 2), reward, dtype=torch.float64)
    rollout = rollout_of([5] * n, valid=[False] * min(spare, n - 1) + [True] * (n - min(spare, n - 1)))
    valid = rollout.ok
    assert torch.equal(batch_mean(returns, rollout)[valid], returns[valid])
    assert torch.equal(group_mean(returns, rollout)[valid], returns[valid])
    norms = torch.rand(n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    for baseline in OF_OTHERS if valid.sum() > 1 else ():
        assert torch.equal(baseline(returns, replace(rollout, score_norms=norms))[valid], returns[valid])


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
