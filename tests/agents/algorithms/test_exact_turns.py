"""Identity 2 with replies between the actions: every agent's expected gradient in an enumerated world of two turns.

The environment is TextGen-v0 and the policy a language model; `tests/support/two_turns.py` has the world, and what the
agents are compared with.
"""

from __future__ import annotations

import copy
import functools
import math
from typing import Any

import pytest
import torch
from diagonal import slow
from two_turns import (
    D,
    P,
    T,
    Walk,
    every_dialogue,
    expected_gradient,
    groups,
    library,
    make_agent,
)

from agents import (
    A2C,
    CISPO,
    DAPO,
    DPPO,
    GRPO,
    GSPO,
    PPO,
    RLOO,
    SAPO,
    TOPR,
    Agent,
    DrGRPO,
    KLCov,
    Reinforce,
    ReinforceBaseline,
    ReinforcePlusPlus,
)

TOLERANCE = 1e-10
RUNNING_MEAN = torch.tensor([0.4, -0.3, 0.7, 0.1], dtype=torch.float64)


@functools.cache
def world(name: str, critic: bool) -> tuple[Any, Walk]:
    """Return the library and the walk of the policy that every agent on this model has, with or without a critic."""
    policy = made(ReinforceBaseline, 1, name, baseline="value" if critic else "none").policy
    return library(policy), Walk(policy)


def made(cls: type[Agent], size: int, name: str = "gpt2", **settings: Any) -> Agent:
    agent = make_agent(cls, size, name, **settings)
    if settings.get("baseline") == "running-mean":
        agent.load_state_dict({"mean": RUNNING_MEAN})
    return agent


def found_and_walk(cls: type[Agent], size: int, name: str = "gpt2", **settings: Any) -> tuple[torch.Tensor, Walk]:
    agent = made(cls, size, name, **settings)
    rollout, walk = world(name, agent.uses_critic)
    return expected_gradient(agent, rollout, walk.chances, size), walk


def relative_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    assert wanted.norm() > 1e-3, "there must be a gradient"
    return float((found - wanted).norm() / wanted.norm())


# The world.


def test_everything_is_enumerated() -> None:
    said = every_dialogue()
    _, walk = world("gpt2", False)
    assert len(said) == P * D and {each.turns for each in said} == {1, 2}
    assert max(len(each.actions) for each in said) == T
    torch.testing.assert_close(walk.chances.unflatten(0, (P, D)).sum(1), torch.ones(P).double(), rtol=1e-13, atol=0)
    assert sum(chance for _, chance in groups(walk.chances, 2)) == pytest.approx(1, abs=1e-13)
    grown = {b - a for each in said for a, b in zip(map(len, each.read), map(len, each.read[1:]), strict=False)}
    assert len(grown) >= 3, "replies of several lengths"
    assert all(each.rewards[each.first - 1] > 0 for each in said if each.turns == 2), "first turns are paid"


def test_the_collector_stores_what_was_played_by_hand() -> None:
    rollout, walk = world("gpt2", False)
    for row, said in enumerate(every_dialogue()):
        steps = len(said.actions)
        assert rollout.mask[row].sum() == steps
        assert rollout.actions[row, :steps].tolist() == list(said.actions)
        assert rollout.rewards[row, :steps].tolist() == list(said.rewards)
        assert rollout.positions[row, :steps].tolist() == [len(read) for read in said.read]
        torch.testing.assert_close(
            rollout.log_probs[row, :steps], torch.tensor(walk.log_probs[row], dtype=torch.float64)
        )


# Agents whose expected gradient is the true one, perhaps times a constant.

EXACT: list[Any] = [
    ("gpt2", Reinforce, 1, {}, 1.0),
    ("llama", Reinforce, 1, {"gamma": 0.9}, 1.0),
    *(
        ("gpt2", ReinforceBaseline, 2, {"baseline": baseline, "returns": returns}, 1.0)
        for baseline, returns in (
            ("none", "return-to-go"),
            ("running-mean", "return-to-go"),
            ("leave-one-out", "return-to-go"),
            ("value", "return-to-go"),
            ("length-weighted", "episode"),
            ("optimal-token", "return-to-go"),
        )
    ),
    ("llama", ReinforceBaseline, 2, {"baseline": "running-mean", "returns": "episode", "gamma": 0.9}, 1.0),
    ("llama", ReinforceBaseline, 2, {"baseline": "value", "returns": "episode", "gamma": 0.9}, 1.0),
    ("gpt2", ReinforceBaseline, 2, {"baseline": "group-mean", "returns": "return-to-go"}, 1 / 2),
    slow("gpt2", ReinforceBaseline, 3, {"baseline": "group-mean", "returns": "episode"}, 2 / 3),
    ("llama", ReinforceBaseline, 2, {"baseline": "batch-mean", "returns": "return-to-go"}, 1 / 2),
    ("llama", RLOO, 2, {"gamma": 0.9}, 1.0),
    slow("gpt2", RLOO, 3, {}, 1.0),
    ("gpt2", DrGRPO, 2, {"max_steps": T}, 1 / 2 / T),
    ("llama", TOPR, 1, {}, 1.0),
]


@pytest.mark.parametrize(("name", "cls", "size", "settings", "factor"), EXACT)
def test_the_expected_gradient_is_the_true_one(
    name: str, cls: type[Agent], size: int, settings: dict[str, Any], factor: float
) -> None:
    found, walk = found_and_walk(cls, size, name, **settings)
    assert relative_error(found, factor * walk.true_gradient(settings.get("gamma", 1.0))) < TOLERANCE


@pytest.mark.parametrize("baseline", ["none", slow("leave-one-out"), slow("value")])
def test_return_to_go_leaves_out_the_discount_of_the_step_which_counts_actions(baseline: str) -> None:
    found, walk = found_and_walk(ReinforceBaseline, 2, baseline=baseline, returns="return-to-go", gamma=0.9)
    wanted = walk.expected(1, lambda rows: [to_go(walk.said[row].rewards, 0.9) for row in rows])
    assert relative_error(found, wanted) < TOLERANCE
    assert relative_error(found, walk.true_gradient(0.9)) > 1e-3


def test_the_anchor_in_the_reward_is_exact() -> None:
    settings = {"kl_coef": 0.3, "baseline": "leave-one-out", "returns": "return-to-go"}
    agent = made(ReinforceBaseline, 2, **settings)
    rollout, walk = world("gpt2", False)
    found = expected_gradient(agent, rollout, walk.chances, 2)
    reference = Walk(copy.deepcopy(agent.anchor.reference).requires_grad_(True))
    penalties = [
        [0.3 * (ours - theirs) for ours, theirs in zip(*each, strict=True)]
        for each in zip(walk.log_probs, reference.log_probs, strict=True)
    ]
    rows = {said: row for row, said in enumerate(walk.said)}
    less = lambda said: [r - p for r, p in zip(said.rewards, penalties[rows[said]], strict=True)]  # noqa: E731
    assert relative_error(found, walk.true_gradient(rewards=less)) < TOLERANCE
    assert relative_error(found, walk.true_gradient()) > 1e-2


# Agents with a documented bias: their definitions, rollout by rollout, in plain Python.

Table = list[list[float]]


def to_go(rewards: Any, gamma: float = 1.0) -> list[float]:
    return [sum(gamma**k * r for k, r in enumerate(rewards[t:])) for t in range(len(rewards))]


def of_tokens(table: Table) -> Table:
    """Divide by the number of actions of the rollout."""
    count = sum(map(len, table))
    return [[a / count for a in row] for row in table]


def whitened(table: Table, eps: float = 1e-8) -> Table:
    every = [a for row in table for a in row]
    mean = sum(every) / len(every)
    deviation = math.sqrt(sum((a - mean) ** 2 for a in every) / len(every))
    if max(every) == min(every):
        return [[0.0] * len(row) for row in table]
    return [[(a - mean) / (deviation + eps) for a in row] for row in table]


def standardized(rewards: list[Any]) -> Table:
    gains = [sum(row) for row in rewards]
    mean = sum(gains) / len(gains)
    deviation = math.sqrt(sum((gain - mean) ** 2 for gain in gains) / (len(gains) - 1))
    return [[(gain - mean) / (deviation + 1e-4)] * len(row) for gain, row in zip(gains, rewards, strict=True)]


def of_episodes(table: Table) -> Table:
    """Divide by the number of episodes and of the episode's actions."""
    return [[a / len(row) / len(table) for a in row] for row in table]


def lambda_errors(rewards: Any, values: list[float], gamma: float, lam: float) -> list[float]:
    """Return Σ_k (γλ)^k (r_{t+k} + γ V_{t+k+1} - V_{t+k}); V is of what is read before each action."""
    after = [*values[1:], 0.0]
    errors = [r + gamma * later - v for r, later, v in zip(rewards, after, values, strict=True)]
    return to_go(errors, gamma * lam)


def dapo(rewards: list[Any]) -> Table:
    equal = len({sum(row) for row in rewards}) == 1
    return [[0.0] * len(row) for row in rewards] if equal else of_tokens(standardized(rewards))


GAE = {"gamma": 0.9, "gae_lambda": 0.7}
DEFINED: list[Any] = [
    ("gpt2", ReinforcePlusPlus, 2, {}, lambda r, v: of_tokens(whitened([to_go(row) for row in r]))),
    ("llama", GRPO, 2, {}, lambda r, v: of_episodes(standardized(r))),
    ("gpt2", GSPO, 2, {}, lambda r, v: of_episodes(standardized(r))),
    ("llama", CISPO, 2, {}, lambda r, v: of_tokens(standardized(r))),
    ("gpt2", DAPO, 2, {}, lambda r, v: dapo(r)),
    ("gpt2", SAPO, 2, {}, lambda r, v: of_episodes(standardized(r))),
    slow("gpt2", DPPO, 2, {}, lambda r, v: of_tokens(standardized(r))),
    slow("llama", KLCov, 2, {}, lambda r, v: of_tokens(standardized(r))),
    slow("gpt2", GRPO, 3, {}, lambda r, v: of_episodes(standardized(r))),
    slow("llama", DAPO, 3, {}, lambda r, v: dapo(r)),
]
CRITICS: list[Any] = [
    ("llama", A2C, 2, GAE, of_tokens),
    slow("gpt2", A2C, 1, {"gamma": 1.0, "gae_lambda": 1.0}, of_tokens),
    ("gpt2", PPO, 2, {"gamma": 1.0, "gae_lambda": 0.5}, lambda table: of_tokens(whitened(table))),
    slow("llama", PPO, 2, GAE | {"normalize_advantage": False}, of_tokens),
]


@pytest.mark.parametrize(("name", "cls", "size", "settings", "define"), DEFINED)
def test_biased_agents_do_what_they_document(
    name: str, cls: type[Agent], size: int, settings: dict[str, Any], define: Any
) -> None:
    found, walk = found_and_walk(cls, size, name, **settings)
    wanted = walk.expected(size, lambda rows: define([walk.said[row].rewards for row in rows], None))
    assert relative_error(found, wanted) < 1e-8


@pytest.mark.parametrize(("name", "cls", "size", "settings", "define"), CRITICS)
def test_generalized_advantages_go_from_action_to_action(
    name: str, cls: type[Agent], size: int, settings: dict[str, Any], define: Any
) -> None:
    """The value after an action is that of the context with the reply; replies are no steps."""
    found, walk = found_and_walk(cls, size, name, **settings)
    credit = [
        lambda_errors(said.rewards, values, settings["gamma"], settings["gae_lambda"])
        for said, values in zip(walk.said, walk.values, strict=True)
    ]
    assert relative_error(found, walk.expected(size, lambda rows: define([credit[row] for row in rows]))) < 1e-8
