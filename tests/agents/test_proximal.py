"""Several optimizer steps a rollout: every row once a pass; and weights for what differs."""

import math
from dataclasses import replace

import pytest
import torch
from agent_kinds import PASSES
from diagonal import diagonal, slow
from identity_checks import EXACT, assert_close
from refused import refusal
from tabular import gradient, make_agent, random_episodes
from updates import sample

from rlenv.agents import AGENTS, PPO, RLOO, DivergedError
from rlenv.agents.training import update

OWN = {
    "ppo": {"gae_lambda": 0.9},
    "dr-grpo": {"max_steps": 3},
    "cispo": {"max_ratio": 1.2},
    "distillation": {"max_ratio": 1.2},
    "clip-cov": {"min_covariance": 0.1},
    "sapo": {"gate_temperature": 20.0, "gate_temperature_negative": 20.0},
}


def proximal(name="grpo", epochs=2, parts=3, **kwargs):
    usual = {"episodes_per_update": 8, "lr_schedule": "constant", "learning_rate": 0.5, "max_grad_norm": 1e9}
    parts_of = {"num_epochs": epochs, "num_minibatches": parts}
    return make_agent(AGENTS[name], group_size=4, **{**usual, **parts_of, **OWN.get(name, {}), **kwargs})


def two_groups(agent):
    return random_episodes(agent.policy, groups=2, size=4)


def table(agent):
    return agent.policy.logits.detach().clone()


# What each step trains on.


def test_passes_are_shuffled_anew():
    agent = proximal("grpo", 4, 2)
    prepared = agent.prepare(two_groups(agent))
    batches = agent.batches(replace(prepared, success=torch.arange(8).float()))
    assert len({frozenset(batch.success.tolist()) for batch in list(batches)[::2]}) == 4


@diagonal("name, parts", PASSES, [2, 5, 8])
def test_the_gradients_of_all_parts_average_to_that_of_the_rollout(name, parts):
    agent = proximal(name, 1, parts)
    prepared = agent.prepare(two_groups(agent))
    whole = gradient(agent, prepared)
    assert whole.abs().max() > 1e-3
    mean = sum(gradient(agent, batch) for batch in agent.batches(prepared)) / parts
    assert_close(mean, whole, EXACT, "the mean over parts")


def test_a_mask_of_episodes_and_a_policy_with_a_memory_see_whole_episodes_of_control_too():
    for mask, memory, whole in ((None, None, False), (0.1, None, True), (None, torch.zeros(1), True)):
        agent = PPO("MlpPolicy", "CartPole-v1", off_policy_mask=mask, episodes_per_update=4, device="cpu")
        rollout = agent.collector.collect(agent.policy, 4, agent.generator)
        agent.policy.initial_state = lambda slots, memory=memory: memory
        shapes = [batch.mask.shape[1] for batch in agent.batches(agent.prepare(rollout))]
        assert len(shapes) == 16 and (min(shapes) > 1 if whole else max(shapes) == 1)


OFTEN = ("ppo", "cispo", "sapo", "sdpo")
PARTS = [*(("grpo", parts) for parts in (1, 3, 16)), *((n, 2) if n in OFTEN else slow(n, 2) for n in PASSES)]


@pytest.mark.parametrize(("name", "parts"), PARTS)
def test_leaving_out_rows_that_teach_nothing_changes_no_step(name, parts):
    """Parts are made of all rows, whether they teach or not, so the same rows stay together.

    One group of a prompt has equal rewards; the other group moves the probabilities of the same actions.
    """
    results = []
    for skip in (True, False):
        agent = proximal(name, 3, parts, skip_idle_rows=skip, episodes_per_update=16, target_kl=1e9)
        rollout = random_episodes(agent.policy, groups=4, size=4)
        rollout.rewards[:4] = 0.0
        results.append((agent.update(rollout), table(agent)))
    (metrics, skipped), (others, whole) = results
    torch.testing.assert_close(skipped, whole, rtol=0, atol=1e-12)
    assert metrics == pytest.approx(others, rel=1e-9) and metrics["train/optimizer_steps"] == 3 * parts
    assert (metrics["train/clip_fraction"] > 0) == (name != "sdpo")  # which by default samples no action to compare
    assert name != "grpo" or (metrics["train/ess"] < 1) == (parts < 16)  # one row is always worth one row


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_passes_end_at_the_first_step_whose_policy_is_further_away_than_the_target(stop, monkeypatch):
    """Its gradient is made and not applied."""
    whole = proximal("ppo", 3, 2, learning_rate=0.05)
    figures, weights, backward = [], [], update.backward
    monkeypatch.setattr(update, "backward", lambda *given: figures.append(backward(*given)) or figures[-1])
    step = whole.policy_optimizer.step
    whole.policy_optimizer.step = lambda *args, **kwargs: (step(*args, **kwargs), weights.append(table(whole)))[0]
    whole.update(two_groups(whole))
    moved = [each["train/approx_kl"] for each in figures]
    limit = moved[stop] * 0.999
    allowed = next(number for number in range(1, 6) if moved[number] > limit)
    agent = proximal("ppo", 3, 2, learning_rate=0.05, target_kl=limit)
    metrics = agent.update(two_groups(agent))
    assert metrics["train/optimizer_steps"] == allowed
    assert metrics["train/approx_kl"] == pytest.approx(sum(moved[:allowed]) / allowed, rel=1e-9)
    assert torch.equal(table(agent), weights[allowed - 1])


# Acting and training have to agree before the policy moves, or the difference is weighed.


def acted_differently(rollout):
    noise = torch.randn(rollout.mask.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return replace(rollout, log_probs=rollout.log_probs + 0.2 * noise)


@pytest.mark.parametrize("name", ["grpo", "rloo"])
def test_a_gap_ends_a_run_or_is_weighed(name):
    rollout = acted_differently(sample())
    plain = make_agent(AGENTS[name], 4)
    before = table(plain)
    with pytest.raises(DivergedError, match=r"log-probabilities while acting and training differ by 0\.\d+ nats"):
        plain.update(rollout)
    assert torch.equal(table(plain), before)
    metrics = make_agent(AGENTS[name], 4, mismatch="token-truncate").update(rollout)
    gap = (sample().log_probs - rollout.log_probs)[rollout.mask]
    assert metrics["train/logp_gap_max"] == pytest.approx(float(gap.abs().max()))
    assert metrics["train/mismatch_kl"] == pytest.approx(float((gap.expm1() - gap).mean()))
    assert metrics["train/mismatch_weight"] == pytest.approx(float(gap.exp().clamp(max=3).mean()))
    assert metrics["train/approx_kl"] == pytest.approx(0, abs=1e-15)


def test_weights_of_whole_episodes_that_differ_shorten_the_step():
    """By the root of the share of the episodes that would say as much if all weighed the same."""
    rollout, steps = acted_differently(sample()), []
    log_weights = (sample().log_probs - rollout.log_probs).where(rollout.mask, 0).sum(1)
    weights = [math.exp(each) for each in log_weights.tolist()]
    share = sum(weights) ** 2 / (len(weights) * sum(weight**2 for weight in weights))
    assert 0.5 < share < 0.95
    for shortened in (False, True):
        agent = make_agent(RLOO, 4, mismatch="token-truncate", scale_by_ess=shortened, micro_batch_size=5)
        before = table(agent)
        assert agent.update(rollout)["train/ess"] == pytest.approx(share, rel=1e-12)
        steps.append(table(agent) - before)
    torch.testing.assert_close(steps[1], math.sqrt(share) * steps[0], rtol=1e-9, atol=0)


def test_the_upper_end_of_the_ratio_follows_the_lower_one_unless_it_is_given(tmp_path):
    agent = PPO("MlpPolicy", "CartPole-v1", clip_range=0.3, device="cpu")
    agent.clip_range = 0.1
    assert agent.bounds == (0.1, 0.1, None)
    agent.save(tmp_path)
    assert PPO.load(tmp_path, clip_range=0.2).bounds == (0.2, 0.2, None)
    assert PPO.load(tmp_path, clip_range=0.2, clip_range_high=0.4).bounds == (0.2, 0.4, None)


@pytest.mark.parametrize(("name", "value"), [("clip_range", 0.5), ("clip_range_high", lambda left: 1 - left / 2)])
def test_the_bound_of_the_ratio_is_compared_with_a_range_that_is_set_later(name, value):
    agent = PPO("MlpPolicy", "CartPole-v1", max_ratio=1.3, episodes_per_update=2, device="cpu")
    setattr(agent, name, value)
    refusal(lambda: agent.learn(total_episodes=2), "max_ratio=1.3", "1.5")
