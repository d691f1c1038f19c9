"""The world of the labs whose policies can be enumerated."""

from __future__ import annotations

import pytest
import torch
from _rlenv_labs.enumerable import episodes, gradients, make_agent, scores

from agents import Reinforce
from agents.exact import TablePolicy, World, WorldEnv, true_gradient

WORLD = World(tokens=3, steps=3, end=2)
PREFIXES, COMPLETIONS = 7, 15


@pytest.fixture
def logits(generator: torch.Generator) -> torch.Tensor:
    return torch.randn(PREFIXES, 3, generator=generator, dtype=torch.float64)


@pytest.fixture
def rewards(generator: torch.Generator) -> torch.Tensor:
    return torch.rand(COMPLETIONS, generator=generator, dtype=torch.float64)


# The world.


def test_scores_agree_with_automatic_differentiation(logits: torch.Tensor) -> None:
    found = torch.autograd.functional.jacobian(WORLD.log_probs, logits).flatten(1)
    torch.testing.assert_close(scores(WORLD, logits), found, rtol=0, atol=1e-14)


def test_single_episodes_through_the_real_loss_average_to_the_exact_gradient(
    logits: torch.Tensor, rewards: torch.Tensor
) -> None:
    agent = make_agent(Reinforce, WORLD, logits, copies=COMPLETIONS)
    every = torch.arange(COMPLETIONS)
    rollout = episodes(agent.policy, WORLD, every, rewards, copies=every)
    found = COMPLETIONS * gradients(agent, agent.prepare(rollout))  # [C, S, V]
    expected = (WORLD.log_probs(logits).exp()[:, None, None] * found).sum(0)
    torch.testing.assert_close(expected, true_gradient(WORLD, logits, WORLD.at_the_end(rewards)), rtol=0, atol=1e-14)
    single = rewards[:, None] * scores(WORLD, logits)
    torch.testing.assert_close(found.flatten(1), single, rtol=0, atol=1e-14)


def test_an_agent_that_plays_meets_the_episodes_that_are_made_by_hand(
    logits: torch.Tensor, rewards: torch.Tensor
) -> None:
    envs = WorldEnv(WORLD, WORLD.at_the_end(rewards[None]), num_envs=4)
    agent = Reinforce(TablePolicy(logits), envs, device="cpu", seed=0)
    played = agent.collector.collect(agent.policy, 60, agent.generator)
    assert played is not None
    assert not played.groups.any(), "all episodes of one prompt are a group"
    said = [tuple(row[shown].tolist()) for row, shown in zip(played.actions, played.mask, strict=True)]
    chosen = torch.tensor([WORLD.completions.index(sequence) for sequence in said])
    made = episodes(agent.policy, WORLD, chosen, rewards[chosen], copies=torch.zeros(60, dtype=torch.int64))
    assert len(set(said)) > 5
    assert torch.equal(played.mask, made.mask)
    for name in ("observations", "rewards", "log_probs"):
        kept, wanted = (getattr(rollout, name)[made.mask] for rollout in (played, made))
        torch.testing.assert_close(kept.double(), wanted.double(), rtol=0, atol=1e-6)
