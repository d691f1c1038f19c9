"""Identity 2 for every agent; the closed forms that it is compared with are in tests/support/family.py.

The expectations are exact: every rollout with one group of K episodes of each of the two prompts, N = 2K, is sent
through the real agent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from diagonal import diagonal
from family import (
    LENGTHS,
    MASK,
    chances,
    dapo_gradient,
    episode_sum_gradient,
    group_gradient,
    group_values,
    informative,
    k3_gradient,
    lambda_advantages,
    length_adaptive_advantages,
    of_members,
    rollout_gradient,
    sequence_ratio_gradient,
    token_mean_gradient,
    whitened_gradient,
)
from tabular import (
    AT_EVERY_LENGTH,
    AT_EVERY_STEP,
    AT_THE_END,
    PREFIXES,
    STATES,
    P,
    S,
    T,
    TabularPolicy,
    coefficients,
    every_group,
    exact_values,
    expected_batch_gradient,
    expected_gradient,
    gradient,
    kl_gradient,
    make_agent,
    relative_error,
    return_to_go_gradient,
    true_gradient,
)
from updates import N, paid_at_the_end, sample

from agents import A2C, CISPO, DAPO, GRPO, GSPO, PPO, RLOO, VAPO, Agent, DrGRPO, ReinforcePlusPlus, Rollout
from agents.estimators import aggregation

TOLERANCE = 1e-10
BETA = 0.3
REWARDS = {"reward at the end": AT_THE_END, "reward at every step": AT_EVERY_STEP}

each_reward = pytest.mark.parametrize("rewards", REWARDS.values(), ids=REWARDS)
EVERY_PROMPT = range(P)

each_size = pytest.mark.parametrize("size", [2, 4])
each_size_and_reward = diagonal("size, rewards", [2, 4], REWARDS)
each_size_of_rollouts = pytest.mark.parametrize(
    "size", [2, pytest.param(3, marks=pytest.mark.slow)]
)  # every joint rollout by itself
each_centring = pytest.mark.parametrize("baseline", ["none", "group-mean"])
LAMBDAS = [0.0, 0.5, 1.0]
each_lambda = pytest.mark.parametrize("lam", LAMBDAS)


class SummedA2C(A2C):
    """A2C whose steps are summed over each episode, so that no weight depends on a length."""

    weights = staticmethod(aggregation.sequence_sum)


class SummedPPO(PPO):
    weights = staticmethod(aggregation.sequence_sum)


class SummedVAPO(VAPO):
    weights = staticmethod(aggregation.sequence_sum)


class SummedGRPO(GRPO):
    weights = staticmethod(aggregation.sequence_sum)


class CentredGRPO(GRPO):
    weights = staticmethod(aggregation.sequence_mean)
    advantages = DrGRPO.advantages


def with_exact_values(agent: Agent, rewards: torch.Tensor, gamma: float = 1.0) -> Agent:
    """Return the agent with a critic that knows every value."""
    with torch.no_grad():
        agent.policy.table.copy_(exact_values(agent.policy, rewards, gamma))
    return agent


def with_values_of_lengths(agent: Agent) -> Agent:
    """Return the agent with a critic that sees the prompt and t alone, so that completions are alike.

    That the agents see nothing else of an episode than rewards and values follows from the identities for K = 1, which
    enumerate every completion with values of its own.
    """
    with torch.no_grad():
        agent.policy.table.copy_(agent.policy.table[:, [len(prefix) for prefix in PREFIXES]])
    return agent


@pytest.fixture(scope="module")
def expected_dapo() -> Callable[[int], tuple[Agent, torch.Tensor]]:
    return cache(_expected_dapo)


def _expected_dapo(size: int) -> tuple[Agent, torch.Tensor]:
    """Return an agent that takes in every episode of a rollout that teaches, and its expected gradient."""
    agent = make_agent(DAPO, size, episodes_per_update=36)
    return agent, expected_batch_gradient(agent, AT_THE_END, size, EVERY_PROMPT)


# Identity 2: agents that compare within a group.


@each_size_and_reward
def test_rloo_is_exact(size: int, rewards: torch.Tensor) -> None:
    agent = make_agent(RLOO, size)
    assert relative_error(expected_gradient(agent, rewards, size), true_gradient(agent.policy, rewards)) < TOLERANCE


@each_size
def test_rloo_is_exact_for_the_discounted_objective(size: int) -> None:
    agent = make_agent(RLOO, size, gamma=0.9)
    found = expected_gradient(agent, AT_EVERY_STEP, size)
    assert relative_error(found, true_gradient(agent.policy, AT_EVERY_STEP, 0.9)) < TOLERANCE


@each_size_and_reward
def test_dr_grpo_is_exact_up_to_its_two_constants(size: int, rewards: torch.Tensor) -> None:
    agent = make_agent(DrGRPO, size, max_steps=T)
    wanted = (size - 1) / size / T * true_gradient(agent.policy, rewards)
    assert relative_error(expected_gradient(agent, rewards, size), wanted) < TOLERANCE


@each_size_and_reward
@pytest.mark.parametrize(
    ("cls", "standardized", "per_token"),
    [(GRPO, True, True), (SummedGRPO, True, False), (CentredGRPO, False, True)],
    ids=["both biases", "std alone", "1/T alone"],
)
def test_grpo_has_the_two_biases_it_documents(
    cls: type[Agent], standardized: bool, per_token: bool, size: int, rewards: torch.Tensor
) -> None:
    agent = make_agent(cls, size)
    found = expected_gradient(agent, rewards, size)
    wanted = group_gradient(agent.policy, size, standardized, per_token, rewards)
    assert relative_error(found, wanted) < TOLERANCE
    true = true_gradient(agent.policy, rewards)
    assert torch.cosine_similarity(found.flatten(), true.flatten(), 0) < 0.9999  # another direction, not only a scale


def test_without_its_two_biases_the_closed_form_of_grpo_is_exact_up_to_a_constant() -> None:
    agent = make_agent(GRPO)
    wanted = 3 / 4 * true_gradient(agent.policy)
    assert relative_error(group_gradient(agent.policy, 4, standardized=False, per_token=False), wanted) < 1e-12


def move(policy: TabularPolicy) -> TabularPolicy:
    """Move the policy away from the one that sampled; return that one."""
    sampler = TabularPolicy()
    assert torch.equal(sampler.logits, policy.logits)
    with torch.no_grad():
        policy.logits += 0.4 * torch.randn(policy.logits.shape, generator=torch.Generator().manual_seed(5))
    return sampler


@each_size_and_reward
def test_gspo_is_grpo_where_the_ratio_is_one(size: int, rewards: torch.Tensor) -> None:
    agent = make_agent(GSPO, size)
    wanted = group_gradient(agent.policy, size, rewards=rewards)
    assert relative_error(expected_gradient(agent, rewards, size), wanted) < TOLERANCE


@pytest.mark.parametrize(
    ("low", "high", "size"),
    [
        pytest.param(low, high, size, marks=[] if size == fast else [pytest.mark.slow])
        for (low, high), fast in (((3e-4, 4e-4), 2), ((0.1, 0.2), 4), ((0.9, 0.9), 2))
        for size in (2, 4)
    ],
)
def test_gspo_weighs_and_clips_whole_episodes_away_from_the_sampling_policy(size: int, low: float, high: float) -> None:
    agent = make_agent(GSPO, size, clip_range=low, clip_range_high=high)
    rollout, probability = every_group(agent.policy, AT_THE_END, size)
    prepared = agent.prepare(rollout)
    share = len(rollout) / (P * size) * probability
    sampler = move(agent.policy)
    found = gradient(agent, replace(prepared, weights=prepared.weights * share[:, None]))
    assert relative_error(found, sequence_ratio_gradient(agent.policy, sampler, size, low, high)) < TOLERANCE
    assert relative_error(found, sequence_ratio_gradient(sampler, sampler, size, low, high)) > 0.1


# Identity 2: agents that look at the whole rollout.


@each_size_of_rollouts
@pytest.mark.parametrize("cls", [GRPO, pytest.param(GSPO, marks=pytest.mark.slow), CISPO])
def test_the_standard_deviation_of_the_batch(cls: type[Agent], size: int) -> None:
    agent = make_agent(cls, size, scale="batch", episodes_per_update=P * size)
    found = expected_batch_gradient(agent, AT_THE_END, size, EVERY_PROMPT)
    assert relative_error(found, rollout_gradient(agent.policy, size, True, cls is CISPO)) < TOLERANCE


@cache
def cispo_credit(size: int) -> tuple[torch.Tensor, Rollout]:
    """Return the coefficients of CISPO, which come before its weights are truncated."""
    return coefficients(make_agent(CISPO, size, episodes_per_update=P * size), AT_THE_END, size, EVERY_PROMPT)


@each_size_of_rollouts
@pytest.mark.parametrize("most", [1.0, 1.5, 5.0])
def test_cispo_is_the_token_mean_with_truncated_weights(size: int, most: float) -> None:
    agent = make_agent(CISPO, size, max_ratio=most, episodes_per_update=P * size)
    table, library = cispo_credit(size)
    prepared = replace(agent.prepare(library), advantages=table, weights=library.mask.double())
    on_policy = rollout_gradient(agent.policy, size, False, True)
    assert relative_error(gradient(agent, prepared), on_policy) < TOLERANCE
    sampler = move(agent.policy)
    found = gradient(agent, prepared)
    assert relative_error(found, rollout_gradient(agent.policy, size, False, True, sampler, most)) < TOLERANCE
    assert relative_error(found, on_policy) > 0.1


@pytest.mark.parametrize(
    ("cls", "settings", "rewards", "size"),
    [
        pytest.param(DAPO, {"episodes_per_update": 4}, AT_THE_END, 2, marks=pytest.mark.slow),
        pytest.param(CISPO, {"episodes_per_update": 4}, AT_THE_END, 2, marks=pytest.mark.slow),
        (ReinforcePlusPlus, {}, AT_THE_END, 1),
        pytest.param(ReinforcePlusPlus, {}, AT_THE_END, 2, marks=pytest.mark.slow),
        pytest.param(ReinforcePlusPlus, {"baseline": "group-mean"}, AT_EVERY_LENGTH, 2, marks=pytest.mark.slow),
    ],
)
def test_completions_with_equal_length_and_rewards_are_credited_alike(
    cls: type[Agent], settings: dict[str, Any], rewards: torch.Tensor, size: int
) -> None:
    """So that K = 3 can be enumerated: 1 960 joint rollouts instead of 462 400.

    One prompt's completions are told apart at a time, so that K = 2 takes 4 320 joint rollouts of 14 400.
    """
    agent = make_agent(cls, **settings)
    merged, _ = coefficients(agent, rewards, size, EVERY_PROMPT)
    for prompt in EVERY_PROMPT:
        apart, _ = coefficients(agent, rewards, size, [other for other in EVERY_PROMPT if other != prompt])
        torch.testing.assert_close(apart, merged, rtol=0, atol=1e-14)


@each_size_of_rollouts
def test_dapo_is_the_token_mean_over_informative_groups(
    size: int, expected_dapo: Callable[[int], tuple[Agent, torch.Tensor]]
) -> None:
    agent, found = expected_dapo(size)
    assert relative_error(found, dapo_gradient(agent.policy, size)) < TOLERANCE


@each_size_of_rollouts
def test_dapo_given_an_informative_group(size: int, expected_dapo: Callable[[int], tuple[Agent, torch.Tensor]]) -> None:
    """A rollout without one has no gradient, so the condition divides the expectation by its probability."""
    agent, found = expected_dapo(size)
    rollout, probability = every_group(agent.policy, AT_THE_END, size)
    teaches, easy = agent._has_gradient(rollout), rollout.observations[:, 0] < S
    missing = [1 - float(probability[teaches & prompt].sum()) / size for prompt in (easy, ~easy)]
    chance = 1 - math.prod(missing)
    assert chance == pytest.approx(informative(agent.policy, size), abs=1e-12)
    assert relative_error(found / chance, dapo_gradient(agent.policy, size, given_informative=True)) < TOLERANCE


def test_dapo_drops_what_has_gradient_nothing() -> None:
    agent = make_agent(DAPO, 4, episodes_per_update=N)
    mixed = paid_at_the_end(sample(), (torch.arange(N) % 5 == 0) * (torch.arange(N) < 12) + 0.5)
    assert agent.prepare(mixed).groups.tolist() == [g for g in (0, 1, 2) for _ in range(4)]
    equal = agent.prepare(paid_at_the_end(sample(), torch.full((N,), 0.1)))
    assert len(equal) == N
    assert not equal.advantages.any()


@each_centring
@each_size_of_rollouts
def test_reinforce_plus_plus_is_the_token_mean_of_whitened_returns(size: int, baseline: str) -> None:
    agent = make_agent(ReinforcePlusPlus, size, baseline=baseline, episodes_per_update=P * size)
    found = expected_batch_gradient(agent, AT_THE_END, size, EVERY_PROMPT)
    values = group_values(size, AT_THE_END, centred=baseline == "group-mean")
    assert relative_error(found, whitened_gradient(agent.policy, size, values)) < TOLERANCE


@pytest.mark.parametrize(("baseline", "size"), [("none", 1), ("group-mean", 2)])
def test_reinforce_plus_plus_credits_every_step_with_what_follows(baseline: str, size: int) -> None:
    agent = make_agent(ReinforcePlusPlus, 2, baseline=baseline)
    rewards, alike = (AT_EVERY_STEP, ()) if size == 1 else (AT_EVERY_LENGTH, EVERY_PROMPT)
    found = expected_batch_gradient(agent, rewards, size, alike)
    values = group_values(size, rewards, centred=baseline == "group-mean")
    assert relative_error(found, whitened_gradient(agent.policy, size, values)) < TOLERANCE


# Identity 2: agents with a critic.


@diagonal("gamma, lam, rewards", [1.0, 0.9], LAMBDAS, REWARDS)
def test_a2c_is_the_token_mean_of_lambda_advantages(gamma: float, lam: float, rewards: torch.Tensor) -> None:
    agent = make_agent(A2C, gae_lambda=lam, gamma=gamma)
    advantages = lambda_advantages(agent.policy.table, rewards, lam, gamma)
    wanted = token_mean_gradient(agent.policy, 1, advantages)
    assert relative_error(expected_batch_gradient(agent, rewards), wanted) < TOLERANCE


def test_the_bias_of_the_token_mean_fades_with_more_episodes() -> None:
    """What is left is the true gradient divided by the mean length; the agent meets the closed form above."""
    policy = TabularPolicy()
    mean_length = float((chances(policy) * LENGTHS).sum(1).mean())
    wanted, credit = true_gradient(policy) / mean_length, lambda_advantages(policy.table, AT_THE_END, 1.0)
    errors = [relative_error(token_mean_gradient(policy, size, credit), wanted) for size in (1, 4, 16, 64, 256)]
    for error, later in pairwise(errors):
        assert 3.5 < error / later < 6.5  # like 1/N
    assert errors[-1] < 0.01


def test_a2c_is_so_with_more_episodes_too() -> None:
    agent = with_values_of_lengths(make_agent(A2C, gae_lambda=0.5))
    wanted = token_mean_gradient(agent.policy, 2, lambda_advantages(agent.policy.table, AT_THE_END, 0.5))
    assert relative_error(expected_batch_gradient(agent, AT_THE_END, 2, EVERY_PROMPT), wanted) < TOLERANCE


@diagonal("lam, rewards", LAMBDAS, REWARDS)
def test_a2c_with_a_perfect_critic_is_biased_by_the_token_mean_alone(rewards: torch.Tensor, lam: float) -> None:
    agent = with_exact_values(make_agent(A2C, gae_lambda=lam), rewards)
    wanted = token_mean_gradient(agent.policy, 1, lambda_advantages(agent.policy.table, rewards, lam))
    found = expected_batch_gradient(agent, rewards)
    assert relative_error(found, wanted) < TOLERANCE
    true = true_gradient(agent.policy, rewards)
    assert torch.cosine_similarity(found.flatten(), true.flatten(), 0) < 0.9999
    summed = with_exact_values(make_agent(SummedA2C, gae_lambda=lam), rewards)
    assert relative_error(expected_gradient(summed, rewards), true) < TOLERANCE


@each_reward
@pytest.mark.parametrize(("cls", "settings"), [(SummedA2C, {}), (SummedPPO, {"normalize_advantage": False})])
def test_without_the_token_mean_lambda_one_is_exact_for_any_critic(
    cls: type[Agent], settings: dict[str, Any], rewards: torch.Tensor
) -> None:
    agent = make_agent(cls, gae_lambda=1.0, **settings)
    assert relative_error(expected_gradient(agent, rewards), true_gradient(agent.policy, rewards)) < TOLERANCE
    agent = make_agent(cls, gae_lambda=1.0, gamma=0.9, **settings)
    found = expected_gradient(agent, rewards)
    assert relative_error(found, return_to_go_gradient(agent.policy, rewards, 0.9)) < TOLERANCE


@each_reward
@each_lambda
def test_without_the_token_mean_a_perfect_critic_is_exact_for_any_lambda(lam: float, rewards: torch.Tensor) -> None:
    agent = with_exact_values(make_agent(SummedPPO, gae_lambda=lam, gamma=0.9, normalize_advantage=False), rewards, 0.9)
    wanted = return_to_go_gradient(agent.policy, rewards, 0.9)
    assert relative_error(expected_gradient(agent, rewards), wanted) < TOLERANCE


@each_reward
@pytest.mark.parametrize("lam", [0.0, 0.5])
def test_below_one_an_imperfect_critic_biases_the_gradient(lam: float, rewards: torch.Tensor) -> None:
    agent = make_agent(SummedA2C, gae_lambda=lam)
    found = expected_gradient(agent, rewards)
    wanted = episode_sum_gradient(agent.policy, lambda_advantages(agent.policy.table, rewards, lam))
    assert relative_error(found, wanted) < TOLERANCE
    assert relative_error(found, true_gradient(agent.policy, rewards)) > 0.1


@each_lambda
def test_a_perfect_critic_stays_where_it_is(lam: float) -> None:
    agent = with_exact_values(make_agent(SummedA2C, gae_lambda=lam, gamma=0.9), AT_EVERY_STEP, 0.9)
    expected_gradient(agent, AT_EVERY_STEP)
    assert agent.policy.table.grad.abs().max() < 1e-14


@each_lambda
@pytest.mark.parametrize("cls", [SummedA2C, SummedPPO])
def test_the_critic_is_drawn_to_the_lambda_return(cls: type[Agent], lam: float) -> None:
    """The λ-return less V is the advantage, which the critic sees before PPO whitens it."""
    agent = make_agent(cls, gae_lambda=lam, gamma=0.9, vf_coef=0.7)
    expected_gradient(agent, AT_EVERY_STEP)
    pull = chances(agent.policy)[..., None] * lambda_advantages(agent.policy.table, AT_EVERY_STEP, lam, 0.9)
    wanted = torch.zeros(P, S, dtype=torch.float64).index_add(1, STATES.flatten(), pull.flatten(1))
    assert relative_error(agent.policy.table.grad, -0.7 * 2 / P * wanted) < TOLERANCE


@diagonal("lam, rewards", [0.5, 0.95, 1.0], REWARDS)
def test_ppo_is_the_token_mean_of_whitened_advantages(lam: float, rewards: torch.Tensor) -> None:
    agent = make_agent(PPO, gae_lambda=lam, gamma=0.9)
    values = of_members(1, lambda_advantages(agent.policy.table, rewards, lam, 0.9))
    found = expected_batch_gradient(agent, rewards)
    assert relative_error(found, whitened_gradient(agent.policy, 1, values)) < TOLERANCE


@pytest.mark.slow
def test_ppo_is_so_with_more_episodes_too() -> None:
    agent = with_values_of_lengths(make_agent(PPO, gae_lambda=0.5))
    values = of_members(2, lambda_advantages(agent.policy.table, AT_THE_END, 0.5))
    found = expected_batch_gradient(agent, AT_THE_END, 2, EVERY_PROMPT)
    assert relative_error(found, whitened_gradient(agent.policy, 2, values)) < TOLERANCE


@diagonal("lam, rewards", LAMBDAS, REWARDS)
def test_ppo_without_whitening_is_a2c_on_average(lam: float, rewards: torch.Tensor) -> None:
    agent = make_agent(PPO, gae_lambda=lam, normalize_advantage=False)
    wanted = token_mean_gradient(agent.policy, 1, lambda_advantages(agent.policy.table, rewards, lam))
    assert relative_error(expected_batch_gradient(agent, rewards), wanted) < TOLERANCE


@diagonal("alpha, rewards, whitened", [0.4, 1.0, 3.0], REWARDS, {"whitened": True, "as it is": False})
def test_vapo_is_the_token_mean_of_advantages_whose_lambda_grows_with_the_length(
    alpha: float, rewards: torch.Tensor, whitened: bool
) -> None:
    agent = make_agent(VAPO, length_alpha=alpha, normalize_advantage=whitened)
    credit = length_adaptive_advantages(agent.policy.table, rewards, alpha)
    if whitened:
        wanted = whitened_gradient(agent.policy, 1, of_members(1, credit))
    else:
        wanted = token_mean_gradient(agent.policy, 1, credit)
    assert relative_error(expected_batch_gradient(agent, rewards), wanted) < TOLERANCE


@each_reward
def test_a_lambda_of_the_length_biases_the_gradient_with_a_perfect_critic_too(rewards: torch.Tensor) -> None:
    """A fixed λ does not, as asserted above: a step's length is not known there, and goes with what comes later."""
    agent = with_exact_values(make_agent(SummedVAPO, length_alpha=1.0, normalize_advantage=False), rewards)
    found, true = expected_gradient(agent, rewards), true_gradient(agent.policy, rewards)
    credit = length_adaptive_advantages(agent.policy.table, rewards, 1.0)
    assert relative_error(found, episode_sum_gradient(agent.policy, credit)) < TOLERANCE
    assert relative_error(found, true) > 0.02
    agent = with_exact_values(make_agent(SummedVAPO, length_alpha=1e13, normalize_advantage=False), rewards)
    assert relative_error(expected_gradient(agent, rewards), true) < TOLERANCE  # λ is 1 there


@pytest.mark.parametrize("lam", [0.5, 1.0])
def test_the_critic_of_vapo_is_drawn_to_returns_of_a_lambda_of_its_own(lam: float) -> None:
    agent = make_agent(VAPO, length_alpha=0.4, gae_lambda=lam, gamma=0.9, vf_coef=0.7)
    rollout, _ = every_group(agent.policy, AT_EVERY_STEP, 1)
    targets = agent.prepare(rollout).value_targets.reshape(P, -1, T)
    wanted = lambda_advantages(agent.policy.table, AT_EVERY_STEP, lam, 0.9) + agent.policy.table.detach()[:, STATES]
    torch.testing.assert_close(targets, wanted.where(MASK, 0), rtol=0, atol=1e-12)


# Identity 2: the KL anchor.


def charged(agent: Agent) -> torch.Tensor:
    """Return the rewards less β (log π - log ref), which is what k1 in the reward makes of them [P, S, V]."""
    log_pi, log_ref = (policy.logits.detach().log_softmax(-1) for policy in (agent.policy, agent.anchor.reference))
    return AT_THE_END - BETA * (log_pi - log_ref)


@each_size
def test_rloo_with_k1_in_the_reward_is_exact(size: int) -> None:
    agent = make_agent(RLOO, size, kl_coef=BETA)
    wanted = true_gradient(agent.policy) + BETA * kl_gradient(agent.policy, agent.anchor.reference)
    assert relative_error(expected_gradient(agent, AT_THE_END, size), wanted) < TOLERANCE


@each_size
def test_dr_grpo_with_k1_in_the_reward_is_exact_up_to_its_two_constants(size: int) -> None:
    agent = make_agent(DrGRPO, size, max_steps=T, kl_coef=BETA)
    wanted = true_gradient(agent.policy) + BETA * kl_gradient(agent.policy, agent.anchor.reference)
    assert relative_error(expected_gradient(agent, AT_THE_END, size), (size - 1) / size / T * wanted) < TOLERANCE


@each_size
def test_grpo_with_k3_in_the_loss(size: int) -> None:
    """The paper's anchor: the gradient of KL(ref || π) step by step, each episode's divided by its length."""
    agent = make_agent(GRPO, size, kl_coef=BETA, kl_estimator="k3", kl_in="loss")
    anchor = BETA * k3_gradient(agent.policy, agent.anchor.reference)
    wanted = group_gradient(agent.policy, size) + anchor
    assert relative_error(expected_gradient(agent, AT_THE_END, size), wanted) < TOLERANCE
    assert relative_error(anchor, BETA * kl_gradient(agent.policy, agent.anchor.reference)) > 0.1


def test_reinforce_plus_plus_whitens_returns_with_the_anchor_in_them() -> None:
    agent = make_agent(ReinforcePlusPlus, kl_coef=BETA)
    wanted = whitened_gradient(agent.policy, 1, group_values(1, charged(agent), centred=False))
    assert relative_error(expected_batch_gradient(agent), wanted) < TOLERANCE


def test_ppo_whitens_advantages_with_the_anchor_in_them() -> None:
    agent = make_agent(PPO, kl_coef=BETA, gae_lambda=0.5)
    values = of_members(1, lambda_advantages(agent.policy.table, charged(agent), 0.5))
    assert relative_error(expected_batch_gradient(agent), whitened_gradient(agent.policy, 1, values)) < TOLERANCE
