"""SmolLM2 acts as it is trained, writes what transformers generates, and means the same with an adapter on or off."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from architectures import generated, greedy_episodes
from identity_checks import assert_close, check_plain_reference, collect
from real_model import policy_of

from agents import LanguageModelPolicy, Reinforce
from agents.language import adapters
from agents.training.divergence import HALF_KL_TOLERANCE

TOLERANCE = 1e-4  # nats, in float32
EPISODES = 16  # in 8 slots, which restart


def test_it_acts_as_it_is_trained(policy: LanguageModelPolicy, envs: Any) -> None:
    check_plain_reference(policy, envs, TOLERANCE)


def test_in_bfloat16_it_acts_as_it_is_trained_within_the_limit(policy: LanguageModelPolicy, envs: Any) -> None:
    """The first pass of an update is measured with the learner's own figure, which stops runs above its limit."""
    settings = {"episodes_per_update": EPISODES, "micro_batch_size": 8, "learning_rate": 1e-4}
    agent = Reinforce("smollm2", envs, policy_kwargs={"dtype": "bfloat16"}, device="cpu", **settings)
    weights = {name: weight.clone() for name, weight in agent.policy.model.state_dict().items()}
    for name, weight in policy.model.state_dict().items():
        assert weights[name].dtype is torch.bfloat16 and torch.equal(weights[name], weight.bfloat16()), name
    metrics = agent.update(collect(agent.policy, envs, EPISODES))
    assert 0 < metrics["train/approx_kl"] <= HALF_KL_TOLERANCE
    assert any(not torch.equal(weight, weights[name]) for name, weight in agent.policy.model.state_dict().items())


def test_greedy_episodes_are_what_transformers_generates(policy: LanguageModelPolicy, envs: Any) -> None:
    task, episodes = envs.task, greedy_episodes(policy, envs, 16)
    assert len(episodes) > 12
    for prompt, written in episodes.items():
        assert written == generated(policy.model, list(prompt), task.vocab_size, task.max_new_tokens, task.eos_token_id)
    ends = [written[-1] == task.eos_token_id for written in episodes.values()]
    assert any(ends), "an answer that the end token ends"


@pytest.fixture(scope="module")
def adapted(envs: Any) -> LanguageModelPolicy:
    """Return the model with an adapter that says something."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = policy_of(envs, lora_rank=8)
    assert policy.adapter is not None and policy.adapter.is_fresh
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            if "lora_B" in name:
                weight.copy_(0.02 * torch.randn(weight.shape, generator=generator))
    return policy


@torch.no_grad()
def log_probs_of(policy: LanguageModelPolicy, rollout: Any) -> torch.Tensor:
    return policy.evaluate(rollout)["log_probs"][rollout.mask]


def test_with_an_adapter_it_acts_as_it_is_trained_and_without_it_is_the_model(
    policy: LanguageModelPolicy, adapted: LanguageModelPolicy, envs: Any
) -> None:
    check_plain_reference(adapted, envs, TOLERANCE)
    rollout = collect(adapted, envs, 8)
    on, base = log_probs_of(adapted, rollout), log_probs_of(policy, rollout)
    assert (on - base).abs().max() > 0.1, "the adapter says something"
    spaces = envs.single_observation_space, envs.single_action_space
    off = LanguageModelPolicy(*spaces, adapters.without_adapter(adapted.model))
    assert_close(log_probs_of(off, rollout), base, 0.0, "the adapter off and the model")
