"""The norms of the scores that a policy gives, from the probabilities of all actions at each step."""

import pytest
import torch
from identity_checks import EXACT, assert_close, collect
from tiny_models import text_envs, tiny_policy

from agents import ControlPolicy, make_envs
from agents.language import reading as chunks


def norm(pi, action):
    """Return 1 - 2π(a) + Σ_v π(v)²."""
    return 1 - 2 * pi[action] + pi.square().sum()


@pytest.mark.parametrize(("name", "temperature", "rows"), [("gpt2", 1.0, 1000), ("llama", 0.6, 3)])
def test_of_a_language_model_they_are_those_of_the_sampled_softmax(name, temperature, rows, monkeypatch):
    """Each episode is read by itself here, there with others and in chunks."""
    envs = text_envs(4)
    policy = tiny_policy(name, envs, temperature)
    rollout = collect(policy, envs, 12)
    monkeypatch.setattr(chunks, "ELEMENTS", rows * policy.vocab_size)
    found = policy.evaluate(rollout, ("score_norms",))["score_norms"]
    assert not found.requires_grad
    wanted = torch.zeros_like(found)
    for row, length in enumerate(rollout.observations["length"].tolist()):
        steps = int(rollout.lengths[row])
        context = torch.cat([rollout.observations["tokens"][row, :length], rollout.actions[row, :steps]])
        with torch.no_grad():
            logits = policy.model(context[None]).logits[0, :, : policy.vocab_size] / temperature
        for t in range(steps):
            wanted[row, t] = norm(logits[length + t - 1].softmax(-1), rollout.actions[row, t])
    assert_close(found, wanted, EXACT, "score norms")
    assert found[rollout.mask].min() > 0


def test_of_control_they_are_those_of_the_categorical_distribution():
    envs = make_envs("CartPole-v1", 4, {})
    policy = ControlPolicy(envs.single_observation_space, envs.single_action_space)
    rollout = collect(policy, envs, 6)
    wanted = torch.zeros(rollout.mask.shape)
    for row, t in rollout.mask.nonzero().tolist():
        pi = policy.net.get_distribution(rollout.observations[row, t][None]).distribution.probs[0]
        wanted[row, t] = norm(pi.detach(), rollout.actions[row, t])
    assert_close(policy.evaluate(rollout, ("score_norms",))["score_norms"], wanted, 1e-6, "score norms")
    envs.close()
