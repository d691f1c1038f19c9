"""The norms of the scores that a policy gives, from the probabilities of all actions at each step."""

import pytest
import torch
from identity_checks import EXACT, assert_close, collect
from tabular import TabularPolicy, random_episodes
from tiny_models import text_envs, tiny_policy

from agents import ControlPolicy, LanguageModelPolicy, Reinforce, ReinforceBaseline, make_envs
from agents.policies.language.training import reading as chunks


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


def test_of_a_table_they_are_those_of_its_rows():
    policy = TabularPolicy()
    rollout = random_episodes(policy)
    pi = policy.logits.detach().flatten(0, 1).softmax(-1)
    for row, t in rollout.mask.nonzero().tolist():
        wanted = norm(pi[rollout.observations[row, t]], rollout.actions[row, t])
        assert float(policy.evaluate(rollout, ("score_norms",))["score_norms"][row, t]) == pytest.approx(
            float(wanted), abs=1e-14
        )


def test_nobody_asks_for_them_unless_the_baseline_needs_them(monkeypatch):
    asked = []
    original = LanguageModelPolicy.evaluate
    monkeypatch.setattr(
        LanguageModelPolicy,
        "evaluate",
        lambda self, part, *want: asked.append(len(part)) or original(self, part, *want),
    )
    envs = text_envs(4, group_size=2)
    policy, known = tiny_policy("gpt2", envs), {"episodes_per_update": 12, "micro_batch_size": 5, "device": "cpu"}
    rollout = collect(policy, envs, 12)
    found = original(policy, rollout, ("score_norms",))["score_norms"]
    for agent in (Reinforce(policy, envs, **known), ReinforceBaseline(policy, envs, **known)):
        assert agent.prepare(rollout).score_norms is None
    assert not asked
    agent = ReinforceBaseline(policy, envs, baseline="optimal-token", **known)
    assert_close(agent.prepare(rollout).score_norms, found, EXACT, "micro-batches and the whole")
    assert asked == [5, 5, 2]
