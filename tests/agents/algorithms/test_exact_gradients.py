"""Identity 2: the real agents' expected gradients are the exact ones of a world that can be enumerated."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from diagonal import slow
from family import own_part_gradient
from loaded import loaded
from tabular import (
    AT_EVERY_LENGTH,
    AT_EVERY_STEP,
    AT_THE_END,
    P,
    T,
    documented_kl_gradient,
    exact_values,
    expected_batch_gradient,
    expected_gradient,
    gradient,
    kl_gradient,
    make_agent,
    random_episodes,
    relative_error,
    return_to_go_gradient,
    true_gradient,
    visits,
)

from agents import A2C, PPO, RLOO, TOPR, Agent, DrGRPO, Reinforce, ReinforceBaseline, Rollout
from agents.estimators import aggregation, baselines
from agents.estimators.baselines import group_sum

OF_OTHERS = ("leave-one-out", "length-weighted", "optimal-token")  # means of the other episodes of the group
UNBIASED = ("none", "running-mean", *OF_OTHERS, "value")
REWARDS = {"reward at the end": AT_THE_END, "reward at every step": AT_EVERY_STEP}
NO_REWARD = torch.zeros_like(AT_THE_END)
TOLERANCE = 1e-10

each_reward = pytest.mark.parametrize("rewards", REWARDS.values(), ids=REWARDS)


class SummedA2C(A2C):
    """A2C whose steps are summed over each episode, so that no weight depends on a length."""

    weights = staticmethod(aggregation.sequence_sum)


class SummedPPO(PPO):
    weights = staticmethod(aggregation.sequence_sum)


# Identity 2: the expected gradient.


def of_baseline(name: str, factor: float = 1.0, size: int = 2, **settings: Any) -> tuple[Any, ...]:
    return ReinforceBaseline, size, {"baseline": name, **settings}, factor


DISCOUNTED, ANCHORED = {"returns": "episode", "gamma": 0.9}, {"kl_coef": 0.3}
SUMMED = {"gae_lambda": 1.0, "normalize_advantage": False}
EXACT: list[tuple[Any, ...]] = [  # agent, K, settings, and what the true gradient is times
    *((Reinforce, size, {}, 1.0) for size in (1, 2)),
    (Reinforce, 1, {"gamma": 0.9}, 1.0),
    *(of_baseline(name, size=2) for name in UNBIASED),
    *(of_baseline(name, size=4, returns="episode") for name in UNBIASED),
    *(of_baseline(name, **DISCOUNTED) for name in UNBIASED),
    *(of_baseline("group-mean", (size - 1) / size, size) for size in (2, 4)),  # the own episode is in the mean
    of_baseline("group-mean", 1 / 2, returns="episode"),
    of_baseline("batch-mean", 1 / 2, 1),
    of_baseline("batch-mean", 1 / 2, 1, returns="episode"),
    *(of_baseline(name, **ANCHORED) for name in ("none", "leave-one-out", "value")),
    of_baseline("leave-one-out", **ANCHORED, returns="episode"),
    of_baseline("group-mean", 1 / 2, **ANCHORED),
    of_baseline("batch-mean", 1 / 2, 1, **ANCHORED),
    *((RLOO, size, settings, 1.0) for size in (2, 4) for settings in ({}, {"gamma": 0.9}, ANCHORED)),
    *((DrGRPO, size, {"max_steps": T}, (size - 1) / size / T) for size in (2, 4)),
    (DrGRPO, 2, {"max_steps": T, **ANCHORED}, 1 / 2 / T),
    *((TOPR, 1, {"threshold": threshold}, 1.0) for threshold in (0.5, 0.2)),
    (SummedA2C, 1, {"gae_lambda": 1.0}, 1.0),  # for any critic
    (SummedPPO, 1, SUMMED, 1.0),
]


@each_reward
@pytest.mark.parametrize(("cls", "size", "settings", "factor"), EXACT)
def test_the_expected_gradient_is_the_true_one(
    cls: type[Agent], size: int, settings: dict[str, Any], factor: float, rewards: torch.Tensor
) -> None:
    """Of the discounted objective, less the KL of the anchor in the reward."""
    agent = make_agent(cls, size, **settings)
    expected = expected_batch_gradient if settings.get("baseline") == "batch-mean" else expected_gradient
    wanted = true_gradient(agent.policy, rewards, settings.get("gamma", 1.0))
    if agent.anchor.coef:
        wanted = wanted + agent.anchor.coef * kl_gradient(agent.policy, agent.anchor.reference)
    assert relative_error(expected(agent, rewards, size), factor * wanted) < TOLERANCE


def test_the_mean_of_a_batch_of_groups_scales_the_gradient_too() -> None:
    agent, n = make_agent(baseline="batch-mean"), 2 * P
    found = expected_batch_gradient(agent, AT_EVERY_LENGTH, 2, range(P))
    assert relative_error(found, (n - 1) / n * true_gradient(agent.policy, AT_EVERY_LENGTH)) < TOLERANCE


def with_the_own_episode(name: str) -> Any:
    """Return a weighted baseline as its paper has it: a mean of the whole group."""

    def baseline(returns: torch.Tensor, rollout: Rollout) -> torch.Tensor:
        weights = rollout.lengths[:, None] if name == "length-weighted" else rollout.score_norms.cumsum(1)
        shares = [group_sum(each, rollout.groups) for each in (weights * returns, weights)]
        return shares[0] / shares[1]

    return baseline


@pytest.mark.parametrize(
    ("name", "size", "cosine"),
    [
        *(("length-weighted", 2, 0.9969), ("optimal-token", 2, 0.9922)),
        *(slow("length-weighted", 4, 0.9991), slow("optimal-token", 4, 0.9976)),
    ],
)
def test_a_weighted_mean_with_the_own_episode_in_it_bends_the_gradient(
    name: str, size: int, cosine: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the papers write it; the baselines of this library leave the episode out."""
    monkeypatch.setitem(baselines.BASELINES, name, lambda: with_the_own_episode(name))
    agent = make_agent(baseline=name, group_size=size)
    found, true = expected_gradient(agent, AT_THE_END, size), true_gradient(agent.policy)
    assert relative_error(found, own_part_gradient(agent.policy, size, name == "optimal-token")) < TOLERANCE
    assert float(torch.cosine_similarity(found.flatten(), true.flatten(), 0)) == pytest.approx(cosine, abs=5e-5)


@each_reward
@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        *((ReinforceBaseline, {"baseline": name, "returns": "return-to-go"}) for name in UNBIASED),
        *((SummedA2C, {"gae_lambda": 1.0}), (SummedPPO, SUMMED)),
    ],
)
def test_return_to_go_leaves_out_the_discount_of_the_step(
    cls: type[Agent], settings: dict[str, Any], rewards: torch.Tensor
) -> None:
    agent = make_agent(cls, gamma=0.9, **settings)
    found = expected_gradient(agent, rewards, 2)
    assert relative_error(found, return_to_go_gradient(agent.policy, rewards, gamma=0.9)) < TOLERANCE
    assert relative_error(found, true_gradient(agent.policy, rewards, gamma=0.9)) > 1e-3


@each_reward
def test_the_critic_is_drawn_to_the_value_of_each_state(rewards: torch.Tensor) -> None:
    agent = make_agent(baseline="value", gamma=0.9, vf_coef=0.7)
    expected_gradient(agent, rewards)
    gap = agent.policy.table.detach() - exact_values(agent.policy, rewards, 0.9)
    wanted = 0.7 * 2 / P * visits(agent.policy.logits.log_softmax(-1)) * gap
    assert relative_error(agent.policy.table.grad, wanted) < TOLERANCE


def test_the_critic_takes_no_gradient_from_the_policy_loss() -> None:
    agent = make_agent(baseline="value", vf_coef=0.0)
    gradient(agent, agent.prepare(random_episodes(agent.policy)))
    assert not agent.policy.table.grad.any()


# Identity 2: the KL anchor.


@pytest.mark.parametrize("returns", ["return-to-go", "episode"])
@pytest.mark.parametrize("place", ["reward", "loss"])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "exact"])
def test_every_kl_estimator_does_what_its_table_says(estimator: str, place: str, returns: str) -> None:
    agent = make_agent(baseline="leave-one-out", returns=returns, kl_coef=1.0, kl_estimator=estimator, kl_in=place)
    wanted = documented_kl_gradient(estimator, place, agent.policy, agent.anchor.reference)
    assert relative_error(expected_gradient(agent, NO_REWARD, 2), wanted) < TOLERANCE
    together = 1.0 * wanted + true_gradient(agent.policy)
    assert relative_error(expected_gradient(agent, AT_THE_END, 2), together) < TOLERANCE


# The pages.

ROOT = Path(__file__).parents[3]


PAGES = tuple(path.name for path in sorted((ROOT / "docs").glob("gradients*.md")))


def made() -> dict[str, list[list[str]]]:
    """Return the cells of the pages as the command makes them now."""
    module = loaded("docs/make_gradients.py")
    return {name: _cells(text) for name, text in module.pages().items()}


@pytest.mark.slow
def test_the_pages_are_what_their_command_writes() -> None:
    pages = made()
    assert set(pages) == set(PAGES)
    for name, rows in pages.items():
        kept = _cells((ROOT / "docs" / name).read_text(encoding="utf-8"))
        assert [_words(row) for row in rows] == [_words(row) for row in kept]
        assert [_numbers(row) for row in rows] == [pytest.approx(_numbers(row), abs=2e-4) for row in kept]


def test_every_row_of_the_pages_holds() -> None:
    """The test above compares the verdicts of these pages with those that the command gives now."""
    kept = [row for name in PAGES for row in _cells((ROOT / "docs" / name).read_text(encoding="utf-8"))]
    verdicts = [row[-1] for row in kept if row[-1] in ("yes", "NO")]
    assert len(verdicts) == 98
    assert set(verdicts) == {"yes"}


def _cells(page: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()]


def _words(row: list[str]) -> list[str]:
    return [re.sub(r"-?\d+\.\d+", "#", cell) for cell in row]


def _numbers(row: list[str]) -> list[float]:
    return [float(number) for cell in row for number in re.findall(r"-?\d+\.\d+", cell)]
