"""Identity 2 for every agent; the closed forms that it is compared with are in tests/support/family.py.

The expectations are exact: every rollout with one group of K episodes of each of the two prompts, N = 2K, is sent
through the real agent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from family import (
    MASK,
    chances,
    dapo_gradient,
    episode_sum_gradient,
    group_gradient,
    group_values,
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
    make_agent,
    relative_error,
    return_to_go_gradient,
    true_gradient,
)

from agents import A2C, CISPO, DAPO, DPPO, GRPO, GSPO, PPO, SAPO, VAPO, Agent, DrGRPO, ReinforcePlusPlus, Rollout
from agents.estimators import aggregation

TOLERANCE = 1e-10
BETA = 0.3
REWARDS = {"reward at the end": AT_THE_END, "reward at every step": AT_EVERY_STEP}

each_reward = pytest.mark.parametrize("rewards", REWARDS.values(), ids=REWARDS)
EVERY_PROMPT = range(P)

each_size_of_rollouts = pytest.mark.parametrize(
    "size", [2, pytest.param(3, marks=pytest.mark.slow)]
)  # every joint rollout by itself
each_lambda = pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])


class SummedA2C(A2C):
    """A2C whose steps are summed over each episode, so that no weight depends on a length."""

    weights = staticmethod(aggregation.sequence_sum)


class SummedPPO(PPO):
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


def with_values_of_lengths(agent: Agent, rewards: torch.Tensor) -> Agent:
    """Return the agent with a critic that sees the prompt and t alone, so that completions are alike.

    That the agents see nothing else of an episode than rewards and values follows from the identities for K = 1, which
    enumerate every completion with values of its own.
    """
    with torch.no_grad():
        agent.policy.table.copy_(agent.policy.table[:, [len(prefix) for prefix in PREFIXES]])
    return agent


# Identity 2: a closed form for every agent with a documented bias.


def as_it_is(agent: Agent, rewards: torch.Tensor) -> Agent:
    return agent


def of_groups(standardized: bool = True, per_token: bool = True) -> Any:
    return lambda agent, rewards, size: group_gradient(agent.policy, size, standardized, per_token, rewards)


def of_rollouts(batch_std: bool, token_mean: bool) -> Any:
    return lambda agent, rewards, size: rollout_gradient(agent.policy, size, batch_std, token_mean)


def of_informative_groups(agent: Agent, rewards: torch.Tensor, size: int) -> torch.Tensor:
    return dapo_gradient(agent.policy, size)


def with_k3(agent: Agent, rewards: torch.Tensor, size: int) -> torch.Tensor:
    """Return the paper's: the gradient of KL(ref || π) step by step, each episode's divided by its length."""
    return group_gradient(agent.policy, size, rewards=rewards) + BETA * k3_gradient(
        agent.policy, agent.anchor.reference
    )


def of_returns(agent: Agent, rewards: torch.Tensor, size: int) -> torch.Tensor:
    values = group_values(size, charged(agent, rewards), centred=agent.baseline == "group-mean")
    return whitened_gradient(agent.policy, size, values)


def charged(agent: Agent, rewards: torch.Tensor) -> torch.Tensor:
    """Return the rewards less β (log π - log ref), which is what k1 in the reward makes of them [P, S, V]."""
    if not agent.anchor.coef:
        return rewards
    log_pi, log_ref = (policy.logits.detach().log_softmax(-1) for policy in (agent.policy, agent.anchor.reference))
    return rewards - BETA * (log_pi - log_ref)


def of_critics(agent: Agent, rewards: torch.Tensor, size: int) -> torch.Tensor:
    """Return the mean over tokens or the sum over steps of λ-advantages, which PPO may whiten."""
    if isinstance(agent, VAPO):
        credit = length_adaptive_advantages(agent.policy.table, rewards, agent.length_alpha)
    else:
        credit = lambda_advantages(agent.policy.table, charged(agent, rewards), agent.gae_lambda, agent.gamma)
    if agent.weights is aggregation.sequence_sum:
        return episode_sum_gradient(agent.policy, credit)
    if getattr(agent, "normalize_advantage", False):
        return whitened_gradient(agent.policy, size, of_members(size, credit))
    return token_mean_gradient(agent.policy, size, credit)


ALONE, JOINT, MERGED = None, (), EVERY_PROMPT  # who is seen: the group, the rollout, the rollout with alike completions
K3 = {"kl_coef": BETA, "kl_estimator": "k3", "kl_in": "loss"}
PLAIN = {"normalize_advantage": False}
BIASED: list[tuple[Any, ...]] = [  # agent, K, settings, rewards, who is seen, the closed form, what the critic knows
    *(
        (cls, size, {}, rewards, ALONE, form, as_it_is)
        for cls, form in (
            (GRPO, of_groups()),
            (SummedGRPO, of_groups(per_token=False)),
            (CentredGRPO, of_groups(standardized=False)),
            (GSPO, of_groups()),
        )
        for size, rewards in ((2, AT_EVERY_STEP), (4, AT_THE_END))
    ),
    (SAPO, 2, {"gate_temperature": 2.0}, AT_THE_END, ALONE, of_groups(), as_it_is),
    (SAPO, 4, {"gate_temperature": 2.0}, AT_THE_END, ALONE, of_groups(), as_it_is),
    *((GRPO, size, K3, AT_THE_END, ALONE, with_k3, as_it_is) for size in (2, 4)),
    *(
        (cls, size, {"scale": "batch"}, AT_THE_END, MERGED, of_rollouts(True, cls is CISPO), as_it_is)
        for cls in (GRPO, GSPO, CISPO)
        for size in (2, 3)
    ),
    (DPPO, 2, {}, AT_THE_END, MERGED, of_rollouts(False, True), as_it_is),
    *((DAPO, size, {}, AT_THE_END, MERGED, of_informative_groups, as_it_is) for size in (2, 3)),
    *(
        (ReinforcePlusPlus, size, {"baseline": baseline}, AT_THE_END, MERGED, of_returns, as_it_is)
        for baseline in ("none", "group-mean")
        for size in (2, 3)
    ),
    (ReinforcePlusPlus, 1, {"baseline": "none"}, AT_EVERY_STEP, JOINT, of_returns, as_it_is),
    (ReinforcePlusPlus, 2, {"baseline": "group-mean"}, AT_EVERY_LENGTH, MERGED, of_returns, as_it_is),
    (ReinforcePlusPlus, 1, {"kl_coef": BETA}, AT_THE_END, JOINT, of_returns, as_it_is),
    *(
        (cls, 1, {"gae_lambda": lam, **settings}, rewards, seen, of_critics, knows)
        for cls, settings, seen, knows in (
            (A2C, {}, JOINT, as_it_is),
            (A2C, {"gamma": 0.9}, JOINT, as_it_is),
            (A2C, {}, JOINT, with_exact_values),
            (PPO, PLAIN, JOINT, as_it_is),
            (PPO, {"gamma": 0.9}, JOINT, as_it_is),
            (SummedA2C, {}, ALONE, as_it_is),
        )
        for lam, rewards in ((0.0, AT_EVERY_STEP), (0.5, AT_THE_END), (1.0, AT_EVERY_STEP))
    ),
    (PPO, 1, {"gae_lambda": 0.5, "kl_coef": BETA}, AT_THE_END, JOINT, of_critics, as_it_is),
    *((cls, 2, {"gae_lambda": 0.5}, AT_THE_END, MERGED, of_critics, with_values_of_lengths) for cls in (A2C, PPO)),
    *(
        (VAPO, 1, {"length_alpha": alpha, **settings}, rewards, JOINT, of_critics, as_it_is)
        for alpha, rewards in ((0.4, AT_EVERY_STEP), (1.0, AT_THE_END), (3.0, AT_EVERY_STEP))
        for settings in ({}, PLAIN)
    ),
]


@pytest.mark.parametrize(
    ("cls", "size", "settings", "rewards", "seen", "form", "knows"),
    [pytest.param(*row, marks=[pytest.mark.slow] if row[1] == 3 else []) for row in BIASED],
)
def test_an_agent_with_a_bias_does_what_its_closed_form_says(
    cls: type[Agent],
    size: int,
    settings: dict[str, Any],
    rewards: torch.Tensor,
    seen: Sequence[int] | None,
    form: Callable[..., torch.Tensor],
    knows: Callable[..., Agent],
) -> None:
    agent = knows(make_agent(cls, size, episodes_per_update=36, **settings), rewards)
    wanted, true = form(agent, rewards, size), true_gradient(agent.policy, rewards, agent.gamma)
    if seen is ALONE:
        found = expected_gradient(agent, rewards, size)
    else:
        found = expected_batch_gradient(agent, rewards, size, seen)
    assert relative_error(found, wanted) < TOLERANCE
    exact = cls is SummedA2C and agent.gae_lambda == 1
    assert exact or torch.cosine_similarity(found.flatten(), true.flatten(), 0) < 0.9999  # another direction


@each_reward
@each_lambda
def test_without_the_token_mean_a_perfect_critic_is_exact_for_any_lambda(lam: float, rewards: torch.Tensor) -> None:
    agent = with_exact_values(make_agent(SummedPPO, gae_lambda=lam, gamma=0.9, **PLAIN), rewards, 0.9)
    wanted = return_to_go_gradient(agent.policy, rewards, 0.9)
    assert relative_error(expected_gradient(agent, rewards), wanted) < TOLERANCE


# Away from the sampling policy.


def move(policy: TabularPolicy) -> TabularPolicy:
    """Move the policy away from the one that sampled; return that one."""
    sampler = TabularPolicy()
    assert torch.equal(sampler.logits, policy.logits)
    with torch.no_grad():
        policy.logits += 0.4 * torch.randn(policy.logits.shape, generator=torch.Generator().manual_seed(5))
    return sampler


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


@each_lambda
@pytest.mark.parametrize("cls", [SummedA2C, SummedPPO])
def test_the_critic_is_drawn_to_the_lambda_return(cls: type[Agent], lam: float) -> None:
    """The λ-return less V is the advantage, which the critic sees before PPO whitens it."""
    agent = make_agent(cls, gae_lambda=lam, gamma=0.9, vf_coef=0.7)
    expected_gradient(agent, AT_EVERY_STEP)
    pull = chances(agent.policy)[..., None] * lambda_advantages(agent.policy.table, AT_EVERY_STEP, lam, 0.9)
    wanted = torch.zeros(P, S, dtype=torch.float64).index_add(1, STATES.flatten(), pull.flatten(1))
    assert relative_error(agent.policy.table.grad, -0.7 * 2 / P * wanted) < TOLERANCE


@pytest.mark.parametrize("lam", [0.5, 1.0])
def test_the_critic_of_vapo_is_drawn_to_returns_of_a_lambda_of_its_own(lam: float) -> None:
    agent = make_agent(VAPO, length_alpha=0.4, gae_lambda=lam, gamma=0.9, vf_coef=0.7)
    rollout, _ = every_group(agent.policy, AT_EVERY_STEP, 1)
    targets = agent.prepare(rollout).value_targets.reshape(P, -1, T)
    wanted = lambda_advantages(agent.policy.table, AT_EVERY_STEP, lam, 0.9) + agent.policy.table.detach()[:, STATES]
    torch.testing.assert_close(targets, wanted.where(MASK, 0), rtol=0, atol=1e-12)
