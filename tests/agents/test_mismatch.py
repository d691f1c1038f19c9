"""Weights for what acting and training disagree about: when they do nothing, what they cost, and what they allow."""

from dataclasses import replace

import pytest
import torch
from tabular import AT_THE_END, TabularPolicy, gradient, make_agent, random_episodes
from tiny_models import text_envs, tiny_policy
from updates import sample

from agents import GRPO, PPO, RLOO, DivergedError
from agents.estimators.mismatch import MODES


def text_agent(dtype, cls=RLOO, **settings):
    envs = text_envs(4, group_size=4)
    agent = cls(tiny_policy("llama", envs, dtype=dtype), envs, episodes_per_update=8, device="cpu", **settings)
    rollout = agent.collector.collect(agent.policy, 8, agent.generator)
    last = torch.arange(rollout.mask.shape[1]) == rollout.lengths[:, None] - 1
    return agent, replace(rollout, rewards=last * (torch.arange(8) % 3)[:, None].to(rollout.rewards))


def flat_gradient(agent, rollout):
    agent.policy.zero_grad()
    agent.loss(agent.prepare(rollout))[0].backward()
    return torch.cat([p.grad.flatten() for p in agent.policy.parameters() if p.grad is not None])


def test_in_16_bits_acting_is_weighed_with_what_training_says():
    agent, rollout = text_agent("bfloat16", GRPO, mismatch="token-truncate", num_epochs=2)
    with torch.no_grad():
        trained = agent.policy.evaluate(rollout)["log_probs"]
    gap = (trained - rollout.log_probs).where(rollout.mask, 0)
    assert 1e-4 < float(gap.abs().max()) < 0.7
    batch = agent.prepare(rollout)
    torch.testing.assert_close(batch.importance[rollout.mask], gap.exp()[rollout.mask])
    assert torch.equal(batch.log_probs, trained.where(rollout.mask, 0))
    metrics = agent.update(rollout)
    assert metrics["train/logp_gap_max"] == pytest.approx(float(gap.abs().max()), rel=1e-5)


def test_without_it_nothing_is_computed_and_with_it_one_pass_more():
    counts = []
    for mode in (None, "token-mask"):
        agent = make_agent(PPO, mismatch=mode, num_epochs=3, num_minibatches=2)
        evaluate, calls = agent.policy.evaluate, []

        def counted(*args, evaluate=evaluate, calls=calls, **kwargs):
            calls.append(torch.is_grad_enabled())
            return evaluate(*args, **kwargs)

        agent.policy.evaluate = counted
        agent.update(sample())
        counts.append((calls.count(True), calls.count(False)))
    assert counts == [(6, 0), (6, 1)]


def acted_differently(rollout, by=0.2):
    noise = torch.randn(rollout.mask.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return replace(rollout, log_probs=rollout.log_probs + by * noise)


def test_a_gap_that_ends_a_run_is_weighed_instead():
    rollout = acted_differently(sample())
    with pytest.raises(DivergedError, match="log-probabilities while acting and training differ by"):
        make_agent(RLOO, 4).update(rollout)
    metrics = make_agent(RLOO, 4, mismatch="token-truncate").update(rollout)
    gap = (sample().log_probs - rollout.log_probs)[rollout.mask]
    assert metrics["train/logp_gap_max"] == pytest.approx(float(gap.abs().max()))
    assert metrics["train/mismatch_kl"] == pytest.approx(float((gap.expm1() - gap).mean()))
    assert metrics["train/mismatch_weight"] == pytest.approx(float(gap.exp().clamp(max=3).mean()))
    assert metrics["train/approx_kl"] == 0


def test_a_gap_that_is_not_finite_still_skips_the_update():
    rollout = sample()
    rollout.log_probs[0, 0] = -torch.inf
    agent = make_agent(RLOO, 4, mismatch="token-truncate", mismatch_max=None)
    before = agent.policy.logits.detach().clone()
    agent.update(rollout)
    assert agent.policy_optimizer.skipped == 1 and torch.equal(agent.policy.logits, before)


@pytest.mark.parametrize("mode", MODES)
def test_the_critic_the_entropy_and_the_kl_are_not_weighed(mode):
    """Only the surrogate is: where every advantage is 0, the gradient is that without weights."""
    settings = {"kl_coef": 0.3, "kl_in": "loss", "kl_estimator": "k2", "ent_coef": 0.1}
    rollout = acted_differently(random_episodes(TabularPolicy(), rewards=0 * AT_THE_END), 0.5)
    found = []
    for more in ({}, {"mismatch": mode}):
        agent = make_agent(RLOO, 4, **settings, **more)
        found.append(gradient(agent, agent.prepare(rollout)))
    assert found[0].abs().max() > 1e-3
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-14)
