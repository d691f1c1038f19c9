"""Identity 2 with replies between the actions, in TextGen-v0 with a language model: `tests/support/two_turns.py`."""

from __future__ import annotations

import copy
import functools
from dataclasses import replace
from typing import Any

import pytest
import torch
from diagonal import slow
from equations import Played, objective
from two_turns import D, Dialogues, P, T, every_dialogue, library, make_agent

import agents
from agents import Agent

RUNNING_MEAN = torch.tensor([0.4, -0.3, 0.7, 0.1], dtype=torch.float64)


@functools.cache
def world(name: str, critic: bool) -> tuple[Any, Dialogues]:
    """Return the library and the dialogues of the policy that every agent on this model has, perhaps with a critic."""
    policy = made(agents.ReinforceBaseline, name, baseline="value" if critic else "none").policy
    return library(policy), Dialogues(policy)


def made(cls: type[Agent], name: str = "gpt2", size: int = 2, **settings: Any) -> Agent:
    agent = make_agent(cls, size, name, **settings)
    if settings.get("baseline") == "running-mean":
        agent.load_state_dict({"mean": RUNNING_MEAN})
    return agent


def gradient(loss: torch.Tensor, policy: Any) -> torch.Tensor:
    """Return the gradient in the weights of the policy's model, flat."""
    parameters = list(policy.model.parameters())
    grads = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
    return torch.cat([grad.flatten() for grad in grads])


def relative_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    assert wanted.norm() > 1e-3, "there must be a gradient"
    return float((found - wanted).norm() / wanted.norm())


def test_everything_is_enumerated() -> None:
    said = every_dialogue()
    _, played = world("gpt2", False)
    assert len(said) == P * D and {each.turns for each in said} == {1, 2}
    assert max(len(each.actions) for each in said) == T
    chances = played.log_probs.sum(1).exp().detach()
    torch.testing.assert_close(chances.unflatten(0, (P, D)).sum(1), torch.ones(P).double(), rtol=1e-13, atol=0)
    grown = {b - a for each in said for a, b in zip(map(len, each.read), map(len, each.read[1:]), strict=False)}
    assert len(grown) >= 3, "replies of several lengths"
    assert all(each.rewards[each.first - 1] > 0 for each in said if each.turns == 2), "first turns are paid"


def test_the_collector_stores_what_was_played_by_hand() -> None:
    rollout, played = world("gpt2", False)
    for row, said in enumerate(every_dialogue()):
        steps = len(said.actions)
        assert rollout.mask[row].sum() == steps
        assert rollout.actions[row, :steps].tolist() == list(said.actions)
        assert rollout.rewards[row, :steps].tolist() == list(said.rewards)
        assert rollout.positions[row, :steps].tolist() == [len(read) for read in said.read]
    torch.testing.assert_close(rollout.log_probs.where(rollout.mask, 0), played.log_probs.detach())


@pytest.mark.parametrize(
    ("name", "cls", "settings"),
    [
        ("gpt2", agents.Reinforce, {}),
        ("llama", agents.Reinforce, {"gamma": 0.9}),
        ("llama", agents.TOPR, {}),
        ("gpt2", agents.ReinforceBaseline, {"baseline": "value"}),
        ("gpt2", agents.ReinforceBaseline, {"baseline": "none", "kl_coef": 0.3}),
    ],
)
def test_the_expected_gradient_is_the_true_one(name: str, cls: type[Agent], settings: dict[str, Any]) -> None:
    """That of E Σ_t γ^t r_t, t in actions, less the KL of whole dialogues; the others follow from their equations."""
    agent = made(cls, name, 1, **settings)
    rollout, played = world(name, agent.uses_critic)
    whole = played.log_probs.sum(1)  # log π of each dialogue
    gains = (rollout.rewards.where(rollout.mask, 0) * settings.get("gamma", 1.0) ** torch.arange(T).double()).sum(1)
    if agent.anchor.coef:
        reference = Dialogues(copy.deepcopy(agent.anchor.reference)).log_probs.sum(1).detach()
        gains = gains - agent.anchor.coef * (whole - reference)
    wanted = gradient((whole.exp() * gains).sum() / P, played.policy)
    prepared = agent.prepare(rollout)
    share = whole.exp().detach() * len(rollout) / P
    loss, _ = agent.loss(replace(prepared, weights=prepared.weights * share[:, None]))
    assert relative_error(-gradient(loss, agent.policy), wanted) < 1e-10


GAE = {"gamma": 0.9, "gae_lambda": 0.7}
EQUATIONS: list[Any] = [
    *(
        ("gpt2", agents.ReinforceBaseline, {"baseline": baseline, "returns": returns})
        for baseline, returns in (
            ("none", "return-to-go"),
            ("running-mean", "return-to-go"),
            ("leave-one-out", "return-to-go"),
            ("value", "return-to-go"),
            ("length-weighted", "episode"),
            ("optimal-token", "return-to-go"),
            ("group-mean", "return-to-go"),
        )
    ),
    ("llama", agents.ReinforceBaseline, {"baseline": "running-mean", "returns": "episode", "gamma": 0.9}),
    ("llama", agents.ReinforceBaseline, {"baseline": "value", "returns": "return-to-go", "gamma": 0.9}),
    ("llama", agents.ReinforceBaseline, {"baseline": "batch-mean", "returns": "return-to-go"}),
    ("gpt2", agents.ReinforceBaseline, {"kl_coef": 0.3, "baseline": "leave-one-out", "returns": "return-to-go"}),
    ("gpt2", agents.Reinforce, {"kl_coef": 2.0, "kl_estimator": "exact", "kl_in": "loss"}),
    ("llama", agents.RLOO, {"gamma": 0.9}),
    ("gpt2", agents.DrGRPO, {"max_steps": T}),
    ("gpt2", agents.ReinforcePlusPlus, {}),
    ("llama", agents.GRPO, {}),
    ("gpt2", agents.GSPO, {}),
    ("llama", agents.CISPO, {}),
    ("gpt2", agents.DAPO, {}),
    ("gpt2", agents.SAPO, {}),
    slow("gpt2", agents.DPPO, {}),
    slow("llama", agents.KLCov, {}),
    ("llama", agents.A2C, GAE),
    slow("gpt2", agents.A2C, {"gamma": 1.0, "gae_lambda": 1.0}),
    ("gpt2", agents.PPO, {"gamma": 1.0, "gae_lambda": 0.5}),
    slow("llama", agents.PPO, GAE | {"normalize_advantage": False}),
]


@pytest.mark.parametrize(("name", "cls", "settings"), EQUATIONS)
def test_the_gradient_is_that_of_the_equation(name: str, cls: type[Agent], settings: dict[str, Any]) -> None:
    """Replies are no steps: the value after an action is that of the context with the reply."""
    agent = made(cls, name, 3, **settings)
    every, played = world(name, agent.uses_critic)
    draw = torch.Generator().manual_seed(0)
    rows = torch.cat([torch.randint(p * D, (p + 1) * D, (3,), generator=draw) for p in (0, 1, 0, 1)])  # 4 groups of 3
    rollout = replace(every.select(rows), groups=torch.arange(4).repeat_interleave(3))
    law = played.laws[rows].unflatten(0, (4, 3))
    reference = agent.anchor.reference
    state = copy.deepcopy(agent.state_dict())
    prepared = agent.prepare(rollout)
    agent.load_state_dict(state)
    it = Played(
        **{name: table.unflatten(0, (4, 3)) for name, table in (("mask", rollout.mask), ("actions", rollout.actions))},
        rewards=rollout.rewards.where(rollout.mask, 0).unflatten(0, (4, 3)),
        law=law,
        old=law.detach(),
        acting=law.detach(),
        reference=reference and Dialogues(copy.deepcopy(reference)).laws[rows].unflatten(0, (4, 3)).detach(),
        old_values=played.values[rows].unflatten(0, (4, 3)) if agent.uses_critic else None,
        values=played.values[rows].unflatten(0, (4, 3)) if agent.uses_critic else None,
        truncated=rollout.truncated.unflatten(0, (4, 3)),
    )
    loss, _ = agent.loss(prepared)
    assert relative_error(-gradient(loss, agent.policy), gradient(objective(agent, it)[0], played.policy)) < 1e-8
