"""What `Onlooker` says about a policy is what the policy acts by and is trained by."""

import math

import gymnasium as gym
import pytest
import torch
from tiny_models import text_envs, tiny_policy

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv.agents import Collector, Reinforce, SampledPolicy
from rlenv.agents.language.nucleus import nucleus
from rlenv.agents.policies.base import actor_parameters
from rlenv.agents.rollouts.action_probabilities import Choices, Onlooker

SUM = {"verifier": "arith", "max_new_tokens": 5}


def agent_of(policy, env_id, policy_kwargs=None, **env_kwargs):
    settings = {"episodes_per_update": 4, "device": "cpu", "seed": 3}
    return Reinforce(policy, env_id, env_kwargs=env_kwargs, policy_kwargs=policy_kwargs, **settings)


def played(agent, env, policy=None, episodes=3):
    """Play at random; return what was seen and done in each step: (starts, observation, action, choices)."""
    onlooker, steps = Onlooker(policy or agent.policy, agent.device), []
    env.action_space.seed(1)
    for episode in range(episodes):
        obs, over = env.reset(seed=5 if episode == 0 else None)[0], False
        onlooker.start()
        starts = True
        while not over:
            action = env.action_space.sample()
            steps.append((starts, obs, int(action), onlooker.look(obs)))
            obs, _, terminated, truncated, _ = env.step(action)
            starts, over = False, terminated or truncated
    return steps


@torch.no_grad()
@pytest.mark.parametrize(("temperature", "top_p", "adapter"), [(1.0, 1.0, {"lora_rank": 2}), (0.7, 0.8, {})])
def test_the_probability_of_a_token_is_that_of_acting(temperature, top_p, adapter):
    agent = agent_of("tiny", "TextGen-v0", policy_kwargs=adapter, **SUM)
    for parameter in actor_parameters(agent.policy):
        parameter.add_(0.1)  # a fresh adapter changes nothing
    policy = SampledPolicy(agent.policy, temperature, top_p)
    steps = played(agent, gym.make("TextGen-v0", **SUM), policy)
    assert len(steps) > 6
    for _, obs, _, choices in steps:
        batch = {key: torch.as_tensor(value)[None] for key, value in obs.items()}
        token, log_prob, _ = policy.act(batch, None, torch.tensor([True]), generator=torch.Generator().manual_seed(0))
        assert choices.log_probs[token[0]] == pytest.approx(float(log_prob[0]), abs=1e-5)
        assert float(choices.log_probs.exp().sum()) == pytest.approx(1)
    assert any(choices.log_probs.isinf().any() for *_, choices in steps) == (top_p < 1)


def test_the_likeliest_come_first_and_drawing_follows_the_probabilities():
    choices = Choices(torch.tensor([0.2, 0.5, 0.0, 0.2, 0.1]).log())
    assert choices.likeliest(3) == [(1, pytest.approx(0.5)), (0, pytest.approx(0.2)), (3, pytest.approx(0.2))]
    assert choices.draw(deterministic=True) == 1
    expected = -sum(p * math.log(p) for p in (0.2, 0.5, 0.2, 0.1))
    assert choices.entropy == pytest.approx(expected)  # 0 log 0 counts 0
    generator = torch.Generator().manual_seed(0)
    drawn = torch.bincount(torch.tensor([choices.draw(False, generator) for _ in range(2000)]), minlength=5) / 2000
    torch.testing.assert_close(drawn, choices.log_probs.exp(), atol=0.03, rtol=0)


# Sampling for evaluation: another temperature and top-p, while the trained policy stays as it is.


@pytest.mark.parametrize("top_p", [0.05, 0.4, 0.7, 0.9, 0.999])
def test_the_nucleus_holds_the_fewest_likeliest_tokens(top_p):
    log_probs = torch.randn(20, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    for law, found in zip(log_probs.exp(), nucleus(log_probs, top_p).exp(), strict=True):
        order = law.argsort(descending=True)
        size = next(size for size in range(1, 10) if law[order[:size]].sum() >= top_p)
        expected = torch.zeros(9, dtype=torch.float64).index_copy_(0, order[:size], law[order[:size]])
        torch.testing.assert_close(found, expected / expected.sum(), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_samples_have_the_log_probabilities_of_their_own_distribution_and_the_policy_stays_as_it_is(name, generator):
    envs = text_envs(num_envs=8, max_new_tokens=4)
    policy = tiny_policy(name, envs, temperature=1.3)
    wrapped = SampledPolicy(policy, temperature=0.7, top_p=0.6)
    rollout = Collector(envs, policy.device).collect(wrapped, 8, generator)
    for row, step in rollout.mask.nonzero().tolist():
        length = int(rollout.observations["length"][row])
        context = torch.cat([rollout.observations["tokens"][row, :length], rollout.actions[row, :step]])
        with torch.no_grad():
            law = (policy.model(context[None]).logits[:, -1, : policy.vocab_size].double() / 0.7).log_softmax(-1)
        wanted = nucleus(law, 0.6)[0, rollout.actions[row, step]]
        assert wanted.isfinite() and float(rollout.log_probs[row, step]) == pytest.approx(float(wanted), abs=1e-9)
    assert wrapped.temperature == 0.7 and policy.temperature == 1.3 and wrapped.model is policy.model
    assert SampledPolicy(policy).temperature == 1.3
    with pytest.raises(ValueError, match="for evaluation"):
        wrapped.evaluate(None)
