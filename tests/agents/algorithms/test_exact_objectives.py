"""Identity 2 for agents with other objectives than the expected reward; closed forms: tests/support/objectives.py."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from objectives import (
    SOLVED,
    WEIGHTS,
    best_of_subsets,
    expected_best,
    group_advantage_gradient,
    objective_gradient,
    over_mean,
    parts_gradient,
    truncated,
)
from tabular import AT_THE_END, P, expected_batch_gradient, expected_gradient, make_agent, relative_error
from updates import N, paid_at_the_end, sample, with_parts

from agents import GDPO, GRPO, PKPO, MaxRL, Rollout
from agents.estimators.best_of_k import BASELINES, best_of_k
from agents.rollout import ERROR, OK

TOLERANCE = 1e-10


# MaxRL.


@pytest.mark.parametrize("size", [2, 3, 4])
def test_maxrl_is_exact_for_the_log_likelihood_truncated_one_below_the_group(size: int) -> None:
    agent = make_agent(MaxRL, size, episodes_per_update=36)
    found = expected_gradient(agent, SOLVED, size)
    assert relative_error(found, objective_gradient(agent.policy, truncated[size - 1], SOLVED)) < TOLERANCE
    for order in (size, size + 1):
        assert relative_error(found, objective_gradient(agent.policy, truncated[order], SOLVED)) > 0.01


@pytest.mark.parametrize("rewards", [AT_THE_END, AT_THE_END - 0.25], ids=["of three levels", "of both signs"])
def test_maxrl_weighs_other_rewards_in_the_same_way(rewards: torch.Tensor) -> None:
    agent = make_agent(MaxRL, 3, episodes_per_update=36)
    wanted = group_advantage_gradient(agent.policy, 3, over_mean, rewards)
    assert relative_error(expected_gradient(agent, rewards, 3), wanted) < TOLERANCE


# PKPO.


def credits(gains: list[float], k: int, baseline: str, groups: list[int] | None = None) -> torch.Tensor:
    """Return the credit of the episodes of one group, or of several."""
    rollout = sample().select(torch.arange(len(gains)))
    rollout = replace(rollout, groups=torch.tensor(groups or [7] * len(gains)))
    column = torch.tensor(gains, dtype=torch.float64)[:, None]
    return best_of_k(column.expand_as(rollout.rewards), rollout, k, baseline)[:, 0]


REWARDS = {
    "zeros and ones": [0.0, 1, 0, 0, 1, 0, 0],
    "one success": [0.0, 0, 0, 0, 0, 1],
    "levels": [0.5, 2.0, -1.0, 0.5, 3.25, 0.0, -1.0, 0.7],
    "two": [0.3, 0.1],
}


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("gains", REWARDS.values(), ids=REWARDS)
def test_the_credit_is_that_of_every_subset(gains: list[float], baseline: str) -> None:
    for k in range(1, len(gains) + 1):
        wanted = torch.tensor(best_of_subsets(gains, k, baseline), dtype=torch.float64)
        assert (credits(gains, k, baseline) - wanted).abs().max() < 1e-12, k


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("rewards", [SOLVED, AT_THE_END - 0.25], ids=["pass@k", "the best of k"])
@pytest.mark.parametrize(("size", "k"), [(2, 1), (2, 2), (3, 1), (3, 2), (3, 3)])
def test_pkpo_is_exact_for_the_best_of_k(size: int, k: int, rewards: torch.Tensor, baseline: str) -> None:
    agent = make_agent(PKPO, size, k=k, baseline=baseline, episodes_per_update=36)
    wanted = objective_gradient(agent.policy, partial(expected_best, k=k), rewards)
    assert relative_error(expected_gradient(agent, rewards, size), wanted) < TOLERANCE


@pytest.mark.parametrize("baseline", BASELINES)
def test_pkpo_takes_the_best_of_the_verdicts_there_are(baseline: str) -> None:
    pays = torch.tensor([0.5, 9.0, 2.0, -1.0] * 6)
    status = torch.full((N,), OK)
    status[[1, 4, 5, 6, 8, 9, 10, 11]] = ERROR
    rollout: Rollout = replace(paid_at_the_end(sample(), pays), status=status)
    found = make_agent(PKPO, 4, k=4, baseline=baseline).prepare(rollout).advantages[:, 0]
    wanted = torch.tensor(best_of_subsets([0.5, 2.0, -1.0], 3, baseline), dtype=torch.float64)
    torch.testing.assert_close(found[[0, 2, 3]], wanted, rtol=0, atol=1e-12)
    assert float(found[7]) == (-1.0 if baseline == "none" else 0.0)  # a group of one
    assert not found[status == ERROR].any()


# GDPO.


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("weights", [WEIGHTS, {"right": 1.0}, {"short": -2.0, "right": 1.0}], ids=str)
def test_gdpo_standardizes_every_part_and_whitens_their_sum(size: int, weights: dict[str, float]) -> None:
    agent = with_parts(make_agent(GDPO, size, part_weights=weights, episodes_per_update=36))
    found = expected_batch_gradient(agent, AT_THE_END, size, range(P))
    assert relative_error(found, parts_gradient(agent.policy, size, weights)) < TOLERANCE


def gdpo_advantages(rollout: Rollout, **settings: Any) -> list[float]:
    return make_agent(GDPO, 4, **settings).prepare(rollout).advantages[:, 0].tolist()


def with_columns(**columns: list[float]) -> Rollout:
    """Return a rollout of groups of 4 whose verdicts have these parts; NaN for none."""
    rows = len(next(iter(columns.values())))
    rollout = sample().select(torch.arange(rows))
    return replace(rollout, extras={f"parts/{name}": torch.tensor(part) for name, part in columns.items()})


def test_gdpo_by_hand() -> None:
    """Two parts of different sizes: their sum is 1 for all but the last, which GRPO could not tell apart."""
    rollout = with_columns(right=[1.0, 0, 1, 0], tidy=[0.0, 10, 0, 0])
    sums = [gap / (math.sqrt(1 / 3) + 1e-4) for gap in (0.5, -0.5, 0.5, -0.5)]
    sums = [one + 0.1 * gap / (5 + 1e-4) for one, gap in zip(sums, (-2.5, 7.5, -2.5, -2.5), strict=True)]
    wanted = [one / math.sqrt(sum(each**2 for each in sums) / 4) for one in sums]
    found = gdpo_advantages(rollout, part_weights={"right": 1, "tidy": 0.1})
    assert found == pytest.approx(wanted, abs=1e-6)


def test_gdpo_has_exactly_no_gradient_from_equal_parts() -> None:
    rollout = with_columns(right=[0.1] * 4 + [0.7] * 4, tidy=[0.3] * 8)
    assert not any(gdpo_advantages(rollout, part_weights={"right": 1.0, "tidy": 3.0}))


def test_a_part_that_a_verdict_lacks_adds_nothing_and_enters_no_mean() -> None:
    nan = float("nan")
    rollout = with_columns(right=[1.0, 0, 1, 0, 1, 0, 1, 0], tidy=[nan, 1.0, 0.0, nan, nan, nan, nan, 5.0])
    right, tidy = 0.5 / (math.sqrt(1 / 3) + 1e-4), 0.5 / (math.sqrt(1 / 2) + 1e-4)
    sums = [right, tidy - right, right - tidy, -right, right, -right, right, -right]
    wanted = [one / math.sqrt(sum(each**2 for each in sums) / 8) for one in sums]
    assert gdpo_advantages(rollout, part_weights={"right": 1, "tidy": 1}) == pytest.approx(wanted, abs=1e-6)


def test_without_parts_the_return_is_the_only_one() -> None:
    rollout = sample()
    plain = make_agent(GDPO, 4).prepare(rollout)
    named = make_agent(GDPO, 4, part_weights={"all": 3.0})
    parts = replace(rollout, extras={"parts/all": rollout.returns, "parts/other": torch.zeros(N)})
    torch.testing.assert_close(plain.advantages, named.prepare(parts).advantages, rtol=0, atol=1e-7)  # but for 1e-8
    grpo = make_agent(GRPO, 4).prepare(rollout).advantages[:, 0]
    wanted = (grpo - grpo.mean()) / (grpo.std(correction=0) + 1e-8)
    torch.testing.assert_close(plain.advantages[:, 0], wanted, rtol=0, atol=1e-12)


def test_a_part_that_no_verdict_has_is_named_in_the_first_update() -> None:
    agent = make_agent(GDPO, 4, part_weights={"right": 1.0, "tody": 1.0})
    with pytest.raises(ValueError) as error:
        agent.update(with_columns(right=[1.0, 0, 1, 0], tidy=[0.0, 10, 0, 0]))
    line = "part_weights names 'tody', but the verdicts of this environment have "
    assert str(error.value) == line + "the parts right, tidy"
    with pytest.raises(ValueError) as error:
        agent.update(sample())
    assert str(error.value) == line.replace("tody", "right") + "no named parts"
    failed = replace(sample(), status=torch.full((N,), ERROR))
    assert agent.update(failed)["train/grad_norm"] == 0  # they say nothing of names
