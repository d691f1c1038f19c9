"""Sampling for evaluation: another temperature and top-p, while the trained policy stays as it is."""

import pytest
import torch
from tiny_models import text_envs, tiny_policy

from agents import Collector
from agents.policies import SampledPolicy
from agents.policies.language.nucleus import nucleus


def smallest_set(probabilities, top_p):
    """Return the nucleus by trying every number of likeliest tokens."""
    order = sorted(range(len(probabilities)), key=lambda token: -probabilities[token])
    for size in range(1, len(order) + 1):
        if sum(probabilities[token] for token in order[:size]) >= top_p:
            break
    kept = {token: probabilities[token] for token in order[:size]}
    return [kept.get(token, 0.0) / sum(kept.values()) for token in range(len(probabilities))]


@pytest.mark.parametrize("top_p", [0.05, 0.4, 0.7, 0.9, 0.999])
def test_the_nucleus_holds_the_fewest_likeliest_tokens(top_p):
    log_probs = torch.randn(20, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    expected = torch.tensor([smallest_set(row, top_p) for row in log_probs.exp().tolist()], dtype=torch.float64)
    torch.testing.assert_close(nucleus(log_probs, top_p).exp(), expected, atol=1e-12, rtol=0)


def test_equal_tokens_come_in_the_order_of_their_ids_and_one_keeps_all():
    even = torch.full((1, 4), 0.25).log()
    assert nucleus(even, 0.5).exp().tolist() == [[0.5, 0.5, 0.0, 0.0]]
    assert nucleus(even, 1.0) is even


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_samples_have_the_log_probabilities_of_their_own_distribution(name, generator):
    envs = text_envs(num_envs=8, max_new_tokens=4)
    policy = tiny_policy(name, envs)
    wrapped = SampledPolicy(policy, temperature=0.7, top_p=0.6)
    rollout = Collector(envs, policy.device).collect(wrapped, 8, generator)
    states = policy._states(reading := policy._reading(rollout))
    full = (policy._logits(states)[:, : policy.vocab_size].double() / 0.7).log_softmax(-1)
    chosen = nucleus(full, 0.6).gather(1, reading.actions[:, None])[:, 0]
    expected = chosen[reading.edge_of_step]
    torch.testing.assert_close(rollout.log_probs[rollout.mask].double(), expected, atol=1e-9, rtol=0)
    assert expected.isfinite().all()


def test_the_policy_itself_stays_as_it_is(generator):
    envs = text_envs(num_envs=4)
    policy = tiny_policy("llama", envs, temperature=1.3)
    before = {name: value for name, value in policy.__dict__.items() if name[0] != "_"}
    wrapped = SampledPolicy(policy, temperature=0.5, top_p=0.5)
    assert wrapped.temperature == 0.5 and policy.temperature == 1.3 and wrapped.model is policy.model
    assert {name: value for name, value in policy.__dict__.items() if name[0] != "_"} == before
    with pytest.raises(ValueError, match="for evaluation"):
        wrapped.evaluate(None)
    assert SampledPolicy(policy).temperature == 1.3
