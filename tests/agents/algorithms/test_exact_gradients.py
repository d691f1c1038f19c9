"""Identities 2, 4, 5 and 7: the real agents' gradients against the exact ones of a world that can be enumerated."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from diagonal import diagonal, slow
from family import own_part_gradient
from identity_checks import padded
from loaded import loaded
from tabular import (
    AT_EVERY_LENGTH,
    AT_EVERY_STEP,
    AT_THE_END,
    LEVELS,
    WORLD,
    CarelessPolicy,
    P,
    TabularPolicy,
    action_values,
    completion_log_probs,
    documented_kl_gradient,
    every_group,
    exact_values,
    expectation,
    expected_batch_gradient,
    expected_gradient,
    gradient,
    kl_gradient,
    make_agent,
    multisets,
    random_episodes,
    relative_error,
    return_to_go_gradient,
    true_gradient,
    visits,
)
from updates import fail, paid_at_the_end, poisoned, sample, shuffled, update_gradient, with_an_empty_row

from agents import VAPO, Agent, Reinforce, ReinforceBaseline, ReinforcePlusPlus, Rollout
from agents.core.rollout import ERROR, OK
from agents.estimators import baselines
from agents.estimators.baselines import group_sum
from agents.exact import WorldEnv, compare_gradients

RETURNS = ("return-to-go", "episode")
OF_OTHERS = ("leave-one-out", "length-weighted", "optimal-token")  # means of the other episodes of the group
BASELINES = ("none", "running-mean", "batch-mean", "group-mean", *OF_OTHERS, "value")
UNBIASED = ("none", "running-mean", *OF_OTHERS, "value")
REWARDS = {"reward at the end": AT_THE_END, "reward at every step": AT_EVERY_STEP}
ESTIMATORS = ("k1", "k2", "k3", "exact")
NO_REWARD = torch.zeros_like(AT_THE_END)

each_reward = pytest.mark.parametrize("rewards", REWARDS.values(), ids=REWARDS)
each_returns = pytest.mark.parametrize("returns", RETURNS)
each_baseline = pytest.mark.parametrize("baseline", BASELINES)


# The reference itself.


@each_reward
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_the_expected_return_agrees_with_bellman(rewards: torch.Tensor, gamma: float) -> None:
    log_pi = TabularPolicy().logits.log_softmax(-1)
    start = (log_pi[:, 0].exp() * action_values(log_pi, rewards, gamma)[:, 0]).sum(-1)  # [P]
    torch.testing.assert_close(expectation(log_pi, rewards, gamma), start.mean(), rtol=1e-14, atol=0)


def test_the_closed_form_of_return_to_go_is_the_gradient_without_discount() -> None:
    policy = TabularPolicy()
    assert relative_error(return_to_go_gradient(policy, AT_EVERY_STEP), true_gradient(policy, AT_EVERY_STEP)) < 1e-13


def test_everything_is_enumerated() -> None:
    policy = TabularPolicy()
    log_pi = policy.logits.log_softmax(-1)
    torch.testing.assert_close(completion_log_probs(log_pi).exp().sum(1), torch.ones(P).double(), rtol=1e-14, atol=0)
    for size, expected in ((1, 15), (2, 120), (4, 3060)):
        rollout, probability = every_group(policy, AT_THE_END, size)
        assert len(rollout) == P * expected * size
        assert sum(orders for _, orders in multisets(size)) == 15**size
        assert float(probability[::size].sum()) == pytest.approx(P, abs=1e-12)


def test_the_prompts_differ_in_difficulty_and_rewards_have_three_levels() -> None:
    pi = completion_log_probs(TabularPolicy().logits.log_softmax(-1)).exp()
    easy, hard = (pi * LEVELS).sum(1).tolist()
    assert easy > 0.5 > 0.2 > hard > 0
    assert [set(level.tolist()) for level in LEVELS] == [{0, 0.5, 1}] * P


def test_an_agent_that_plays_meets_the_episodes_that_are_enumerated() -> None:
    agent = make_agent()
    played = agent.collector.collect(agent.policy, 200, agent.generator)
    library, _ = every_group(agent.policy, AT_THE_END, 1)
    known = {}
    for row in range(len(library)):
        shown = library.mask[row]
        key = (*library.observations[row][shown].tolist(), *library.actions[row][shown].tolist())
        known[key] = (library.rewards[row][shown], library.log_probs[row][shown])
    met = set()
    for row in range(len(played)):
        shown = played.mask[row]
        key = (*played.observations[row][shown].tolist(), *played.actions[row][shown].tolist())
        met.add(key)
        torch.testing.assert_close(played.rewards[row][shown].double(), known[key][0], rtol=0, atol=0)
        torch.testing.assert_close(played.log_probs[row][shown], known[key][1], rtol=0, atol=1e-14)
    assert len(met) > 20


# Identity 2: the expected gradient.


@each_reward
@pytest.mark.parametrize("size", [1, 2])
def test_reinforce_is_exact(rewards: torch.Tensor, size: int) -> None:
    agent = make_agent(Reinforce)
    assert relative_error(expected_gradient(agent, rewards, size), true_gradient(agent.policy, rewards)) < 1e-10


@each_returns
@diagonal("baseline, size, rewards", UNBIASED, [2, 4], REWARDS)
def test_an_unbiased_baseline_leaves_the_gradient_exact(
    baseline: str, size: int, returns: str, rewards: torch.Tensor
) -> None:
    agent = make_agent(baseline=baseline, returns=returns, group_size=size)
    assert relative_error(expected_gradient(agent, rewards, size), true_gradient(agent.policy, rewards)) < 1e-10


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
    assert relative_error(found, own_part_gradient(agent.policy, size, name == "optimal-token")) < 1e-10
    assert float(torch.cosine_similarity(found.flatten(), true.flatten(), 0)) == pytest.approx(cosine, abs=5e-5)


@diagonal("size, returns, rewards", [2, 4], RETURNS, REWARDS)
def test_group_mean_scales_the_gradient_by_one_less_than_k_over_k(
    size: int, returns: str, rewards: torch.Tensor
) -> None:
    agent = make_agent(baseline="group-mean", returns=returns, group_size=size)
    wanted = (size - 1) / size * true_gradient(agent.policy, rewards)
    assert relative_error(expected_gradient(agent, rewards, size), wanted) < 1e-10


@pytest.mark.parametrize(
    ("size", "returns", "rewards"),
    [
        (1, "return-to-go", AT_THE_END),
        pytest.param(1, "return-to-go", AT_EVERY_STEP, marks=pytest.mark.slow),
        (1, "episode", AT_EVERY_STEP),
        (2, "return-to-go", AT_EVERY_LENGTH),
    ],
    ids=["N=2, at the end", "N=2, every step", "N=2, every step, episode", "N=4, every step"],
)
def test_batch_mean_scales_the_gradient_by_one_less_than_n_over_n(
    size: int, returns: str, rewards: torch.Tensor
) -> None:
    agent = make_agent(baseline="batch-mean", returns=returns)
    n = P * size
    wanted = (n - 1) / n * true_gradient(agent.policy, rewards)
    alike = range(P) if rewards is AT_EVERY_LENGTH else ()
    assert relative_error(expected_batch_gradient(agent, rewards, size, alike), wanted) < 1e-10


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        *((ReinforceBaseline, {"baseline": name}) for name in ("none", "running-mean", "batch-mean", "value")),
        (ReinforceBaseline, {"baseline": "batch-mean", "returns": "episode"}),
        (ReinforcePlusPlus, {}),
        (VAPO, {"length_alpha": 1.0}),
    ],
)
def test_both_ways_of_enumerating_agree(cls: type[Agent], settings: dict[str, Any]) -> None:
    """By linearity the expected gradient is that of a table of coefficients; here it is compared with loss by loss."""
    agent = make_agent(cls, 1, episodes_per_update=P, **settings)
    agent.use_env(WorldEnv(WORLD, AT_EVERY_STEP, group_size=1))
    _, one_by_one = compare_gradients(agent, true_gradient(agent.policy, AT_EVERY_STEP))
    agent.prepare = _without_memory(agent)
    assert relative_error(expected_batch_gradient(agent, AT_EVERY_STEP), one_by_one) < 1e-6  # it keeps float32


def _without_memory(agent: Any) -> Any:
    prepare, state = agent.prepare, agent.state_dict()

    def prepare_from_the_same_state(rollout: Rollout) -> Rollout:
        agent.load_state_dict(state)
        return prepare(rollout)

    return prepare_from_the_same_state


@diagonal("baseline, returns", ["none", "running-mean", "group-mean", *OF_OTHERS, "value"], RETURNS)
def test_a_group_is_credited_alone_as_among_all_groups(baseline: str, returns: str) -> None:
    agent = make_agent(baseline=baseline, returns=returns, kl_coef=0.3)
    agent.prepare = _without_memory(agent)
    rollout, _ = every_group(agent.policy, AT_EVERY_STEP, 2)
    together = agent.prepare(rollout).advantages
    for start in range(0, len(rollout), 46):
        rows = slice(start, start + 2)
        assert torch.equal(agent.prepare(rollout.select(rows)).advantages, together[rows])


@each_reward
@pytest.mark.parametrize("baseline", UNBIASED)
def test_the_episode_return_is_exact_for_the_discounted_objective(baseline: str, rewards: torch.Tensor) -> None:
    agent = make_agent(baseline=baseline, returns="episode", gamma=0.9)
    wanted = true_gradient(agent.policy, rewards, gamma=0.9)
    assert relative_error(expected_gradient(agent, rewards, 2), wanted) < 1e-10
    agent = make_agent(Reinforce, gamma=0.9)
    assert relative_error(expected_gradient(agent, rewards), wanted) < 1e-10


@each_reward
@pytest.mark.parametrize("baseline", UNBIASED)
def test_return_to_go_leaves_out_the_discount_of_the_step(baseline: str, rewards: torch.Tensor) -> None:
    agent = make_agent(baseline=baseline, returns="return-to-go", gamma=0.9)
    found = expected_gradient(agent, rewards, 2)
    assert relative_error(found, return_to_go_gradient(agent.policy, rewards, gamma=0.9)) < 1e-10
    assert relative_error(found, true_gradient(agent.policy, rewards, gamma=0.9)) > 1e-3


@each_reward
def test_the_critic_is_drawn_to_the_value_of_each_state(rewards: torch.Tensor) -> None:
    agent = make_agent(baseline="value", gamma=0.9, vf_coef=0.7)
    expected_gradient(agent, rewards)
    gap = agent.policy.table.detach() - exact_values(agent.policy, rewards, 0.9)
    wanted = 0.7 * 2 / P * visits(agent.policy.logits.log_softmax(-1)) * gap
    assert relative_error(agent.policy.table.grad, wanted) < 1e-10


def test_the_critic_takes_no_gradient_from_the_policy_loss() -> None:
    agent = make_agent(baseline="value", vf_coef=0.0)
    gradient(agent, agent.prepare(random_episodes(agent.policy)))
    assert not agent.policy.table.grad.any()


# Identity 2: the KL anchor.


@each_returns
@pytest.mark.parametrize(("baseline", "factor"), [("none", 1), ("leave-one-out", 1), ("value", 1), ("group-mean", 0.5)])
def test_k1_in_the_reward_is_exact(baseline: str, factor: float, returns: str) -> None:
    agent = make_agent(baseline=baseline, returns=returns, kl_coef=0.3)
    wanted = true_gradient(agent.policy) + 0.3 * kl_gradient(agent.policy, agent.anchor.reference)
    assert relative_error(expected_gradient(agent, AT_THE_END, 2), factor * wanted) < 1e-10


def test_k1_in_the_reward_is_exact_among_all_episodes_of_a_rollout() -> None:
    agent = make_agent(baseline="batch-mean", kl_coef=0.3)
    wanted = true_gradient(agent.policy) + 0.3 * kl_gradient(agent.policy, agent.anchor.reference)
    assert relative_error(expected_batch_gradient(agent), wanted / 2) < 1e-10


@each_returns
@pytest.mark.parametrize("place", ["reward", "loss"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_kl_estimator_does_what_its_table_says(estimator: str, place: str, returns: str) -> None:
    agent = make_agent(baseline="leave-one-out", returns=returns, kl_coef=1.0, kl_estimator=estimator, kl_in=place)
    wanted = documented_kl_gradient(estimator, place, agent.policy, agent.anchor.reference)
    assert relative_error(expected_gradient(agent, NO_REWARD, 2), wanted) < 1e-10
    together = 1.0 * wanted + true_gradient(agent.policy)
    assert relative_error(expected_gradient(agent, AT_THE_END, 2), together) < 1e-10


def test_k1_in_the_loss_leaves_no_trace_in_the_expected_gradient() -> None:
    agent = make_agent(baseline="none", kl_coef=1.0, kl_in="loss")
    assert expected_gradient(agent, NO_REWARD).abs().max() < 1e-15


@pytest.mark.parametrize("estimator", ["k2", "k3", "exact"])
@pytest.mark.parametrize("place", ["reward", "loss"])
def test_no_other_kl_estimator_is_exact(estimator: str, place: str) -> None:
    policy, reference = TabularPolicy(), TabularPolicy(7)
    assert (
        relative_error(documented_kl_gradient(estimator, place, policy, reference), kl_gradient(policy, reference))
        > 0.1
    )


# Identities 4 and 5: what the gradient of an update does not depend on.

PLACES = ("reward", "loss")
SETTINGS: list[dict[str, Any]] = [
    *({"baseline": baseline, "returns": RETURNS[i % 2]} for i, baseline in enumerate(BASELINES)),
    *(
        {"baseline": "leave-one-out", "kl_coef": 0.3, "kl_estimator": estimator, "kl_in": PLACES[i % 2]}
        for i, estimator in enumerate(ESTIMATORS)
    ),
    {"baseline": "value", "kl_coef": 0.3, "gamma": 0.9, "ent_coef": 0.1},
    {"baseline": "batch-mean", "ent_coef": 0.1, "gamma": 0.9, "kl_coef": 0.3},
]
OTHER_SETTINGS: list[dict[str, Any]] = [  # the other halves of the pairs above
    *({"baseline": baseline, "returns": RETURNS[(i + 1) % 2]} for i, baseline in enumerate(BASELINES)),
    *(
        {"baseline": "leave-one-out", "kl_coef": 0.3, "kl_estimator": estimator, "kl_in": PLACES[(i + 1) % 2]}
        for i, estimator in enumerate(ESTIMATORS)
    ),
]
NAMED = {"-".join(map(str, settings.values())): settings for settings in (*SETTINGS, *OTHER_SETTINGS)}
RARE = list(NAMED)[len(SETTINGS) :]
each_setting = diagonal("settings", NAMED, rare=RARE)


@diagonal("settings, rows", NAMED, [1, 5, 24], rare=RARE)
def test_micro_batches_leave_the_gradient_alone(settings: dict[str, Any], rows: int) -> None:
    assert (
        relative_error(update_gradient(settings, sample(), micro_batch_size=rows), update_gradient(settings, sample()))
        < 1e-12
    )


@each_setting
def test_row_order_leaves_the_gradient_alone(settings: dict[str, Any]) -> None:
    found = update_gradient(settings, shuffled(sample()))
    assert relative_error(found, update_gradient(settings, sample())) < 1e-12


@each_setting
def test_padding_leaves_the_gradient_alone(settings: dict[str, Any]) -> None:
    found = update_gradient(settings, padded(sample(), junk=1))
    assert relative_error(found, update_gradient(settings, sample())) < 1e-12


@each_setting
def test_nan_in_masked_cells_changes_nothing(settings: dict[str, Any]) -> None:
    assert torch.equal(update_gradient(settings, poisoned(sample())), update_gradient(settings, sample()))


@each_setting
def test_what_a_policy_leaves_in_masked_cells_changes_nothing(settings: dict[str, Any]) -> None:
    found = update_gradient(settings, sample(), policy=CarelessPolicy)
    assert torch.equal(found, update_gradient(settings, sample()))


@diagonal("settings, group", NAMED, {"in a group": 0, "alone": 99}, rare=RARE)
def test_a_row_that_is_masked_throughout_changes_nothing(settings: dict[str, Any], group: int) -> None:
    found = update_gradient(settings, with_an_empty_row(sample(), group))
    assert relative_error(found, update_gradient(settings, sample())) < 1e-12


@each_baseline
def test_a_row_without_steps_is_no_episode_even_with_a_verdict(baseline: str) -> None:
    found = update_gradient({"baseline": baseline}, with_an_empty_row(sample(), status=OK))
    assert relative_error(found, update_gradient({"baseline": baseline}, sample())) < 1e-12


@each_setting
def test_leaving_out_idle_rows_leaves_the_gradient_alone(settings: dict[str, Any]) -> None:
    rollout = random_episodes(TabularPolicy(), size=2, seed=3)
    every = update_gradient(settings, rollout, skip_idle_rows=False)
    assert relative_error(update_gradient(settings, rollout, skip_idle_rows=True), every) < 1e-12


def test_some_rows_are_idle() -> None:
    agent = make_agent()
    rollout = random_episodes(agent.policy, size=2, seed=3)
    assert 0 < len(rollout.select(agent._rows_to_train(agent._with_gradient(agent.prepare(rollout))))) < len(rollout)


# Failed verdicts.


@diagonal("settings, reward", NAMED, [0.0, 1e6], rare=RARE)
def test_failed_verdicts_teach_nothing(settings: dict[str, Any], reward: float) -> None:
    rollout, valid = fail(sample(), reward)
    assert relative_error(update_gradient(settings, rollout), update_gradient(settings, rollout.select(valid))) < 1e-12


@each_setting
def test_the_reward_of_a_failed_verdict_may_be_nan(settings: dict[str, Any]) -> None:
    rollout, valid = fail(sample(), torch.nan)
    assert relative_error(update_gradient(settings, rollout), update_gradient(settings, rollout.select(valid))) < 1e-12


@each_baseline
def test_a_rollout_of_failed_verdicts_alone_has_no_gradient(baseline: str) -> None:
    rollout = replace(sample(), status=torch.full((24,), ERROR))
    assert not update_gradient({"baseline": baseline}, rollout).any()


# Identity 7, and groups of one.


@diagonal("baseline, reward, returns", ["group-mean", *OF_OTHERS], [0.0, 1.0, 0.1, 1 / 3, -7.3], RETURNS)
def test_equal_rewards_in_a_group_give_exactly_no_gradient(baseline: str, returns: str, reward: float) -> None:
    """Groups of three, whose rewards differ from group to group and whose episodes differ in length."""
    policy = TabularPolicy()
    rollout = random_episodes(policy, groups=8, size=3)
    equal = paid_at_the_end(rollout, reward + 0.7 * (rollout.groups % 3))
    assert not update_gradient({"baseline": baseline, "returns": returns}, equal).any()


@each_returns
def test_equal_rewards_in_a_rollout_give_exactly_no_gradient_by_batch_mean(returns: str) -> None:
    rollout = random_episodes(TabularPolicy(), groups=8, size=3)
    equal = paid_at_the_end(rollout, torch.full((24,), 0.1))
    assert not update_gradient({"baseline": "batch-mean", "returns": returns}, equal).any()


@diagonal("baseline, returns", OF_OTHERS, RETURNS)
def test_a_group_of_one_has_no_others_to_be_compared_with(baseline: str, returns: str) -> None:
    rollout = random_episodes(TabularPolicy(), groups=8, size=1, rewards=AT_EVERY_STEP)
    alone = update_gradient({"baseline": baseline, "returns": returns}, rollout)
    assert torch.equal(alone, update_gradient({"baseline": "none", "returns": returns}, rollout))


@each_returns
def test_a_group_of_one_is_its_own_mean(returns: str) -> None:
    rollout = random_episodes(TabularPolicy(), groups=8, size=1, rewards=AT_EVERY_STEP)
    assert not update_gradient({"baseline": "group-mean", "returns": returns}, rollout).any()


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
