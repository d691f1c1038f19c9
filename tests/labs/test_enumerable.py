"""The world of the labs whose policies can be enumerated."""

from __future__ import annotations

import pytest
import torch
from _rlenv_labs.enumerable import make_agent, scores

from agents import Reinforce
from agents.exact import World, episodes, gradient, true_gradient

WORLD = World(tokens=3, steps=3, end=2)
PREFIXES, COMPLETIONS = 7, 15


@pytest.fixture
def logits(generator: torch.Generator) -> torch.Tensor:
    return torch.randn(PREFIXES, 3, generator=generator, dtype=torch.float64)


@pytest.fixture
def rewards(generator: torch.Generator) -> torch.Tensor:
    return torch.rand(COMPLETIONS, generator=generator, dtype=torch.float64)


def test_single_episodes_through_the_real_loss_average_to_the_exact_gradient(
    logits: torch.Tensor, rewards: torch.Tensor
) -> None:
    agent = make_agent(Reinforce, WORLD, logits, copies=COMPLETIONS)
    every = torch.arange(COMPLETIONS)
    rollout = episodes(agent.policy, WORLD, every, rewards, every)
    found = COMPLETIONS * gradient(agent, agent.prepare(rollout))  # [C, S, V]
    expected = (WORLD.log_probs(logits).exp()[:, None, None] * found).sum(0)
    torch.testing.assert_close(expected, true_gradient(WORLD, logits, WORLD.at_the_end(rewards)), rtol=0, atol=1e-14)
    single = rewards[:, None] * scores(WORLD, logits)
    torch.testing.assert_close(found.flatten(1), single, rtol=0, atol=1e-14)
