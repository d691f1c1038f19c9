"""A small language model and a warm start, for the labs that train."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from rlenv.agents import Agent, LanguageModelPolicy, Policy, Rollout, warm_start
from rlenv.agents.policies.base import critic_parameters
from rlenv.demonstrations import demonstrate
from rlenv.task import TextGenTask
from rlenv.verifiers import Verifier

ENV = "TextGen-v0"


def small_model(task: TextGenTask, seed: int, width: int = 64, layers: int = 1) -> PreTrainedModel:
    """Return an untrained Llama-type model over the task's vocabulary, its weights drawn from the seed."""
    config = LlamaConfig(
        vocab_size=task.encoding.vocab_size, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=task.encoding.max_length,
        tie_word_embeddings=True, pad_token_id=None, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config).eval()


def warm_model(
    verifier: Verifier, seed: int, steps: int, examples: int = 512, learning_rate: float = 3e-3, **shape: int
) -> PreTrainedModel:
    """Return a small model that has imitated the verifier's demonstrations.

    Args:
        verifier: poses the problems and demonstrates them.
        seed: of the weights, the problems and the batches.
        steps: of the warm start, 64 episodes each; 0 for an untrained model.
        examples: demonstrations to draw from.
        learning_rate: of the warm start.
        shape: `width` and `layers` of the model.
    """
    task = TextGenTask(verifier, test_fraction=0.0)
    task.reseed(np.random.default_rng(seed))
    policy = LanguageModelPolicy(
        task.encoding.observation_space, task.encoding.action_space, small_model(task, seed, **shape)
    )
    shown = demonstrate(task, 0, examples)
    episodes = Rollout.of_demonstrations(shown.observations, shown.actions, shown.mask, shown.positions)
    generator = torch.Generator().manual_seed(seed)
    draw = lambda size: episodes.select(torch.randint(examples, (size,), generator=generator))  # noqa: E731
    warm_start(policy, draw, steps, batch_size=64, learning_rate=learning_rate)
    return policy.model


def make_agent(
    cls: type[Agent], start: PreTrainedModel | Policy | str, verifier: Verifier, seed: int, **settings: Any
) -> Agent:
    """Return an agent that starts from a copy of a model or policy, or from a preset, and trains on every problem."""
    settings = {"lr_schedule": "constant", "device": "cpu", "group_size": 8, **settings}
    env_kwargs = {"verifier": verifier, "test_fraction": 0.0}
    return cls(copy.deepcopy(start), ENV, env_kwargs=env_kwargs, seed=seed, **settings)


def sample(agent: Agent, episodes: int) -> Rollout:
    """Return fresh episodes of the policy as it is now."""
    rollout = agent.collector.collect(agent.policy, episodes, agent.generator)
    assert rollout is not None
    return rollout


def train(agent: Agent, updates: int) -> Iterator[tuple[Rollout, dict[str, float]]]:
    """Train for this many updates, and yield the episodes and the metrics of each.

    Updates are counted, not episodes: DAPO collects several rounds of episodes for some updates. The learning rate has
    to be constant.
    """
    endless = agent.updates(total_episodes=sys.maxsize)
    return (update for _, update in zip(range(updates), endless, strict=False))


def seeds_of(seed: int, count: int) -> list[int]:
    """Return the seeds of an experiment's independent starts."""
    return [int(own) for own in np.random.SeedSequence(seed).generate_state(count)]


def fit_critic(agent: Agent, steps: int, batches: int, episodes: int, learning_rate: float = 1e-3) -> None:
    """Fit the agent's critic to fresh rollouts of its policy, which stays as it is.

    Args:
        agent: one with a critic.
        steps: of Adam, each on one of the rollouts, in turn.
        batches: how many rollouts.
        episodes: of each.
        learning_rate: of Adam.
    """
    optimizer = torch.optim.Adam(critic_parameters(agent.policy), lr=learning_rate)
    rollouts = [agent.prepare(sample(agent, episodes)) for _ in range(batches)]
    for step in range(steps):
        batch = rollouts[step % batches]
        optimizer.zero_grad(set_to_none=True)
        batch.total(batch.weights * agent.critic_loss(agent.policy.values(batch), batch)).backward()
        optimizer.step()
