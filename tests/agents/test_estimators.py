"""What equations of agents do not say of estimators: known answers, exact zeros, the running mean.

`tests/laws/test_gradient.py` compares what they return with the agents' equations.
"""

import itertools
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch

from rlenv._status import ERROR
from rlenv.agents import Rollout
from rlenv.agents.estimators.baselines import RunningMean, group_mean, james_stein, leave_one_out, optimal_token
from rlenv.agents.estimators.clipping import clipped_ratio
from rlenv.agents.estimators.gates import gamma_kernel, largest, soft_gate
from rlenv.agents.estimators.kl import k3
from rlenv.agents.estimators.mismatch import MODES, importance_weights
from rlenv.agents.estimators.pass_at_k import attempts, bootstrap_mean, maj_at_k, pass_at_k
from rlenv.agents.estimators.returns import hold_last
from rlenv.agents.estimators.scaling import group_std, over_group_mean, standardize_parts, whiten
from rlenv.agents.policies.choosing import score_norms
from rlenv.agents.training.reward_model import bradley_terry

NAN = torch.nan
double = partial(torch.tensor, dtype=torch.float64)
RETURNS = double([[1.0, 3.0], [5.0, 5.0], [0.0, 1.0], [9.0, 7.0], [4.0, 2.0]])
GROUPS = [8, 3, 8, 3, 8]


def rollout_of(groups, steps=1, lengths=None, **more):
    """Return episodes that only say which group they are of, and how long they are."""
    mask = torch.arange(steps) < torch.tensor(lengths or [steps] * len(groups))[:, None]
    made = Rollout.of_demonstrations(torch.zeros(len(groups)), torch.zeros(len(groups), steps), mask)
    return replace(made, groups=torch.tensor(groups), **more)


def norms_of(*rows):
    return {"extras": {"score_norms": double(rows)[:, None].expand(-1, 2)}}


REWARDS = torch.tensor([[1.0, 2.0, 4.0], [8.0, -2.0, NAN], [3.0, NAN, NAN]])
CHOICES = torch.tensor([[3.0, 9.0, 1.0], [2.0, 2.0, NAN]])
CHOSEN = torch.tensor([[True, False, True], [True, True, False]])
ONE_GROUP = rollout_of([0, 0, 0])
ALONE = rollout_of([0, 1, 2, 3, 4], 2, **norms_of(1, 1, 1, 1, 1))
SURE = double([[0, -8, -9]]).log_softmax(-1)  # 1 - 2π + Σ π² is rounding errors in float32
PI, NEAR = SURE[0].exp(), torch.tensor([-1 + 2**-10])
FAR = torch.tensor([[0.0, 0.0], [-900.0, -900.0]])
KNOWN = {
    "an end keeps its last": (lambda: hold_last(REWARDS, ~REWARDS.isnan()), [[1, 2, 4], [8, -2, -2], [3, 3, 3]]),
    "each step by itself": (
        lambda: group_std(double([[0, 5], [2, 5]]), rollout_of([0, 0], 2)),
        [[math.sqrt(2), 0]] * 2,
    ),
    "one step is whitened to zero": (lambda: whiten(torch.tensor([[3, NAN]]), torch.tensor([[True, False]])), [[0, 0]]),
    "a mean of rounding": (lambda: over_group_mean(torch.tensor([[0.3], [-0.1], [-0.2]]), ONE_GROUP), [[0]] * 3),
    "the mean of others of one is zero": (lambda: leave_one_out(RETURNS, ALONE), 0 * RETURNS),
    "the mean of one is itself": (lambda: group_mean(RETURNS, ALONE), RETURNS),
    "the plain mean of others who were certain": (
        lambda: optimal_token(RETURNS, rollout_of(GROUPS, 2, **norms_of(0, 0, 0, 0, 0))),
        leave_one_out(RETURNS, rollout_of(GROUPS, 2)),
    ),
    "one was not": (  # its baseline is the others', theirs is its return
        lambda: optimal_token(RETURNS, rollout_of(GROUPS, 2, **norms_of(1, 0, 0, 0, 0)))[[0, 2, 4]],
        [[2, 1.5], [1, 3], [1, 3]],
    ),
    "nobody to draw to: the answers to the other prompt pay the same": (
        lambda: james_stein(double([[0], [1], [1], [0], [0], [1], [1]]), rollout_of([0] * 5 + [1] * 2))[:5],
        [[0.5], [0.25], [0.25], [0.5], [0.5]],
    ),
    "a score norm near certainty": (
        lambda: (score_norms(SURE.float(), torch.tensor([0])) / (1 - 2 * PI[0] + PI.square().sum())).round(decimals=3),
        [1],
    ),
    "of the least likely": (lambda: score_norms(SURE, torch.tensor([2])), [1 - 2 * PI[2] + PI.square().sum()]),
    "k3 near the reference": (lambda: (k3(torch.tensor([-1.0]), NEAR) * 2**21).round(decimals=2), [1]),
    "the largest one": (lambda: largest(CHOICES, CHOSEN, 1), [[True, False, False], [False, False, False]]),
    "with those equal to it": (lambda: largest(CHOICES, CHOSEN, 2), [[True, False, False], [True, True, False]]),
    "all": (lambda: largest(CHOICES, CHOSEN, 99), CHOSEN),
    "a preference by Bradley and Terry": (
        lambda: bradley_terry(double([1.0, -2.0, 0.5]) + 9, double([0.0, 1.0, 0.5]) + 9),  # the level does not matter
        [math.log1p(math.exp(-gap)) for gap in (1.0, -3.0, 0.0)],
    ),
    "finite far away": (lambda: bradley_terry(torch.tensor(-1e4), torch.tensor(1e4)), 2e4),
    "attempts double": (lambda: [attempts(1), attempts(8), attempts(9)], [[1], [1, 2, 4, 8], [1, 2, 4, 8, 9]]),
    "a tie counts half": (lambda: maj_at_k(((2, 2), (2, 0)), 0, (4,)), (0.5,)),
    "no answer is wrong": (lambda: maj_at_k((), 4, (1, 4)), (0.0, 0.0)),
    "one value has no interval": (lambda: bootstrap_mean([0.25], np.random.default_rng(0)), (0.25, 0.25)),
    **{
        f"ratios beyond all numbers: {mode}": (
            partial(importance_weights, FAR, FAR.flip(0), torch.ones(2, 2, dtype=torch.bool), mode, 0.0, 3.0),
            [[3, 3] if mode.endswith("truncate") else [0, 0], [0, 0]],
        )
        for mode in MODES
    },
}


@pytest.mark.parametrize(("call", "wanted"), KNOWN.values(), ids=KNOWN)
def test_known_answers(call, wanted):
    found = call()
    if isinstance(found, torch.Tensor):
        torch.testing.assert_close(found.double(), torch.as_tensor(wanted).double(), rtol=1e-5, atol=1e-12)
    else:
        assert found == wanted


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parts_that_cancel_in_every_group_leave_nothing(dtype):
    rollout = rollout_of([0] * 4 + [1] * 4 + [2] * 3)
    right = torch.rand(len(rollout), generator=torch.Generator().manual_seed(0), dtype=dtype)
    assert not standardize_parts([(right, 0.3), (0.1 - right, 0.3)], rollout).any()
    uneven = standardize_parts([(right, 0.3), (0.1 - right, 0.3 + 1e-4)], rollout)
    assert float(uneven.square().mean()) == pytest.approx(1, rel=1e-2)


def test_the_running_mean_by_hand():
    baseline, rollout = RunningMean(decay=0.5), rollout_of(GROUPS, 2)
    assert not baseline(RETURNS, rollout).any()  # nothing known: 0, and then the mean itself
    assert baseline.mean.tolist() == pytest.approx([3.8, 3.6])
    assert baseline(torch.ones_like(RETURNS), rollout).tolist() == [pytest.approx([3.8, 3.6])] * 5
    assert baseline.mean.tolist() == pytest.approx([2.4, 2.3])
    longer = torch.tensor([[2.0, 4.0, 6.0, 8.0]])
    assert baseline(longer, rollout_of([0], 4)).tolist() == [pytest.approx([2.4, 2.3, 2.3, 2.3])]  # its last one stays
    assert baseline.mean.tolist() == pytest.approx([2.2, 3.15, 4.15, 5.15])
    shorter = torch.tensor([[4.0], [6.0]])  # ended episodes keep their last return
    assert baseline(shorter, rollout_of([0, 0])).tolist() == [[pytest.approx(2.2)]] * 2
    assert baseline.mean.tolist() == pytest.approx([3.6, 4.075, 4.575, 5.075])


def test_only_finite_returns_of_episodes_with_a_verdict_enter_the_running_mean():
    baseline, alone = RunningMean(), RunningMean()
    rollout = rollout_of(GROUPS, 2, status=torch.tensor([0, ERROR, 0, ERROR, 0]))
    baseline(torch.where(rollout.ok[:, None], RETURNS, NAN), rollout)
    alone(RETURNS[rollout.ok], rollout.select(rollout.ok))
    assert torch.equal(baseline.mean, alone.mean)
    for bad in (torch.nan, torch.inf):
        baseline(RETURNS.where(RETURNS != 1, bad), rollout)
        assert torch.equal(baseline.mean, alone.mean)


# pass@k and maj@k against every subset there is.


def over_subsets(items, k, score):
    subsets = list(itertools.combinations(items, k))
    return float(sum((score(subset) for subset in subsets), Fraction(0)) / len(subsets))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("k", "decay"), [(0.5, 0.0), (0.05, 0.0), (2.0, 3.0)])
def test_the_kernel_of_a_ratio_beyond_floats_is_that_of_its_logarithm(k, decay, dtype):
    """W overflows in both dtypes at the last one; W^k does not, and with a decay nothing is left of either."""
    log_ratio = torch.tensor([[-1000.0], [0.0], [100.0], [800.0]], dtype=dtype, requires_grad=True)
    if k == 0.5 and dtype is torch.float32:
        log_ratio = log_ratio[:3].detach().requires_grad_()  # exp(400) is beyond float32
    advantages = torch.tensor([[1.0, 0.0, -1.0]], dtype=dtype).expand(len(log_ratio), 3)
    found = gamma_kernel(log_ratio, advantages, (k, decay), (k, decay))
    exponents = (k * w - (decay * math.expm1(min(w, 700)) if decay else 0.0) for w in log_ratio.flatten().tolist())
    expected = torch.tensor([[math.exp(each)] for each in exponents], dtype=dtype).expand(-1, 3)
    assert torch.allclose(found, expected, rtol=1e-4, atol=0)
    (slope,) = torch.autograd.grad(found[:, 0].sum(), log_ratio)  # of W^k exp(λ (1 - W)): (k - λ W) times itself
    ratios = torch.tensor([[math.exp(min(w, 700))] for w in log_ratio.flatten().tolist()], dtype=torch.float64)
    assert torch.allclose(slope.double(), (k - decay * ratios) * expected[:, :1].double(), rtol=1e-4, atol=0)


def test_a_ratio_beyond_floats_has_no_gradient_where_it_is_clipped():
    log_ratio, advantages = torch.full((1, 3), 800.0, requires_grad=True), torch.tensor([[1.0, 0.0, -1.0]])
    compared = log_ratio, torch.zeros(1, 3), advantages
    for found in (clipped_ratio(*compared, 0.2, 0.2, most=3.0), soft_gate(*compared, 1.0, 1.05)):
        (slope,) = torch.autograd.grad(found.sum(), log_ratio)
        assert found.isfinite().all() and not slope.any()


@pytest.mark.parametrize("samples", [1, 2, 5, 8])
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(samples):
    for right, k in itertools.product(range(samples + 1), range(1, samples + 1)):
        brute = over_subsets([i < right for i in range(samples)], k, lambda subset: Fraction(any(subset)))
        assert pass_at_k(samples, right, k) == pytest.approx(brute, abs=1e-14)


def majority(subset):
    """Return the expected score of a majority vote over (answer, right share) pairs; None does not vote."""
    votes = Counter(answer for answer, _ in subset if answer is not None)
    tied = [answer for answer, count in votes.items() if count == max(votes.values())]
    return sum((dict(subset)[answer] for answer in tied), Fraction(0)) / max(len(tied), 1)


@pytest.mark.parametrize("seed", range(12))
def test_maj_at_k_is_the_mean_over_all_subsets(seed):
    rng = np.random.default_rng(seed)
    votes = tuple((int(count), int(rng.integers(count + 1))) for count in rng.integers(1, 4, size=rng.integers(1, 5)))
    silent = int(rng.integers(3))
    items = [(answer, Fraction(right, count)) for answer, (count, right) in enumerate(votes) for _ in range(count)]
    items += [(None, Fraction(0))] * silent
    sizes = tuple(range(1, len(items) + 1))
    assert maj_at_k(votes, silent, sizes) == pytest.approx([over_subsets(items, k, majority) for k in sizes], abs=1e-13)


def test_the_interval_of_a_mean_has_its_known_width():
    low, high = found = bootstrap_mean([1.0] * 300 + [0.0] * 700, np.random.default_rng(0))
    half = 1.96 * math.sqrt(0.21 / 1000)
    assert (low, high) == (pytest.approx(0.3 - half, abs=3e-3), pytest.approx(0.3 + half, abs=3e-3))
    assert found == bootstrap_mean([1.0] * 300 + [0.0] * 700, np.random.default_rng(0))
