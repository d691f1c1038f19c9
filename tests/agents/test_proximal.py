"""Several optimizer steps a rollout: every row once a pass, the first step on policy; and weights for what differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from agent_kinds import PASSES
from diagonal import diagonal
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st
from identity_checks import EXACT, assert_close
from tabular import gradient, make_agent, random_episodes
from tiny_models import text_envs, tiny_policy
from updates import sample

from agents import AGENTS, GRPO, PPO, RLOO, Agent, DivergedError, Rollout
from agents.rollout import ERROR

OWN = {
    "ppo": {"gae_lambda": 0.9},
    "dr-grpo": {"max_steps": 3},
    "cispo": {"max_ratio": 1.2},
    "distillation": {"max_ratio": 1.2},
    "clip-cov": {"min_covariance": 0.1},
}
CHOOSING = ("clip-cov", "kl-cov")  # their figure is the share of the steps that they choose, whatever the ratio


def proximal(name: str = "grpo", epochs: int = 2, parts: int = 3, **kwargs: Any) -> Agent:
    usual = {"episodes_per_update": 8, "lr_schedule": "constant", "learning_rate": 0.5, "max_grad_norm": 1e9}
    parts_of = {"num_epochs": epochs, "num_minibatches": parts}
    return make_agent(AGENTS[name], group_size=4, **{**usual, **parts_of, **OWN.get(name, {}), **kwargs})


def two_groups(agent: Agent) -> Rollout:
    return random_episodes(agent.policy, groups=2, size=4)


def listen(agent: Agent) -> list[dict[str, float]]:
    """Record the figures of every optimizer step from now on."""
    figures: list[dict[str, float]] = []
    backward = agent.updater.backward
    agent.updater.backward = lambda batch: figures.append(backward(batch)) or figures[-1]
    return figures


# What each step trains on.


@drawn(15)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 15))
def test_every_row_is_visited_exactly_once_a_pass(episodes: int, epochs: int, parts: int) -> None:
    agent = proximal("grpo", epochs, parts)
    rollout = random_episodes(agent.policy, groups=episodes, size=1)
    rollout.groups = torch.zeros_like(rollout.groups)
    batches = list(agent.batches(replace(agent.prepare(rollout), success=torch.arange(episodes).float())))
    wanted = min(parts, episodes)
    assert len(batches) == epochs * wanted
    for start in range(0, len(batches), wanted):
        seen = torch.cat([batch.success for batch in batches[start : start + wanted]])
        assert sorted(seen.tolist()) == list(range(episodes))
    sizes = {len(batch) for batch in batches}
    assert max(sizes) - min(sizes) <= 1 and min(sizes) >= 1


def test_passes_are_shuffled_anew() -> None:
    agent = proximal("grpo", 4, 2)
    prepared = agent.prepare(two_groups(agent))
    batches = agent.batches(replace(prepared, success=torch.arange(8).float()))
    assert len({frozenset(batch.success.tolist()) for batch in list(batches)[::2]}) == 4


@diagonal("name, parts", PASSES, [2, 5, 8])
def test_the_gradients_of_all_parts_average_to_that_of_the_rollout(name: str, parts: int) -> None:
    agent = proximal(name, 1, parts)
    prepared = agent.prepare(two_groups(agent))
    whole = gradient(agent, prepared)
    assert whole.abs().max() > 1e-3
    mean = sum(gradient(agent, batch) for batch in agent.batches(prepared)) / parts
    assert_close(mean, whole, EXACT, "the mean over parts")


@pytest.mark.parametrize("parts", [5, 50])
def test_ppo_visits_every_step_that_counts_exactly_once_a_pass(parts: int) -> None:
    agent = proximal("ppo", 2, parts)
    rollout = two_groups(agent)
    rollout.status[3] = ERROR
    rollout.rewards = torch.arange(float(rollout.rewards.numel())).view_as(rollout.rewards)  # a number for each step
    prepared = agent.prepare(rollout)
    batches = list(agent.batches(prepared))
    wanted = sorted(prepared.rewards[prepared.learnable].tolist())
    count = min(parts, len(wanted))  # parts are made of steps, of which there are more than episodes
    assert len(batches) == 2 * count and len(rollout) < len(wanted) < 50
    for start in (0, count):
        seen = torch.cat([batch.rewards for batch in batches[start : start + count]])
        assert seen.shape == (len(wanted), 1) and sorted(seen[:, 0].tolist()) == wanted
    each = prepared.by_step()
    assert torch.equal(each.weights[:, 0], prepared.weights[prepared.learnable])
    assert each.mask.all() and each.ok.all()


def test_a_mask_of_episodes_sees_whole_episodes_of_control_too() -> None:
    for mask, longest in ((None, 1), (0.1, 2)):
        agent = PPO("MlpPolicy", "CartPole-v1", off_policy_mask=mask, episodes_per_update=4, device="cpu")
        rollout = agent.collector.collect(agent.policy, 4, agent.generator)
        shapes = [batch.mask.shape[1] for batch in agent.batches(agent.prepare(rollout))]
        assert len(shapes) == 16 and all(steps >= longest for steps in shapes) and (mask or max(shapes) == 1)


@pytest.mark.parametrize("parts", [1, 3, 8])
def test_leaving_out_rows_that_teach_nothing_changes_no_step(parts: int) -> None:
    """Parts are made of all rows, whether they teach or not, so the same rows stay together."""
    results = []
    for skip in (True, False):
        agent = proximal("grpo", 2, parts, skip_idle_rows=skip)
        rollout, figures = two_groups(agent), listen(agent)
        rollout.rewards[:4] = 0.0
        metrics = agent.update(rollout)
        assert len(figures) == 2 * parts
        logged = (metrics[f"train/{name}"] for name in ("clip_fraction", "approx_kl", "grad_norm"))
        results.append((agent.policy.logits.detach(), *logged))
    (skipped, *with_skip), (whole, *without) = results
    torch.testing.assert_close(skipped, whole, rtol=0, atol=1e-12)
    assert with_skip == pytest.approx(without, rel=1e-9) and with_skip[0] > 0


# The ratio.


@pytest.mark.parametrize("name", PASSES)
def test_the_first_step_is_on_policy_later_ones_are_not_and_figures_are_means(name: str) -> None:
    agent = proximal(name, 3, 2)
    figures = listen(agent)
    logged = agent.update(two_groups(agent))
    first, *later = figures
    assert first["train/clip_fraction"] == 0.0 or name in CHOOSING
    assert abs(first["train/approx_kl"]) < EXACT and first["train/logp_gap_max"] < EXACT
    assert all(step["train/approx_kl"] > 1e-4 for step in later)
    assert any(step["train/clip_fraction"] > 0 for step in later)
    for key in ("train/approx_kl", "train/clip_fraction", "train/policy_loss", "train/loss"):
        assert logged[key] == pytest.approx(sum(step[key] for step in figures) / len(figures), abs=1e-15), key
    assert logged["train/logp_gap_max"] == first["train/logp_gap_max"] < later[0]["train/logp_gap_max"]


# Acting and training have to agree before the policy moves, or the difference is weighed.


def acted_differently(rollout: Rollout, by: float = 0.2) -> Rollout:
    noise = torch.randn(rollout.mask.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return replace(rollout, log_probs=rollout.log_probs + by * noise)


@pytest.mark.parametrize("name", ["grpo", "rloo"])
def test_a_gap_ends_a_run_or_is_weighed(name: str) -> None:
    rollout = acted_differently(sample())
    plain = make_agent(AGENTS[name], 4)
    before = plain.policy.logits.detach().clone()
    with pytest.raises(DivergedError, match=r"log-probabilities while acting and training differ by 0\.\d+ nats"):
        plain.update(rollout)
    assert torch.equal(plain.policy.logits, before)
    metrics = make_agent(AGENTS[name], 4, mismatch="token-truncate").update(rollout)
    gap = (sample().log_probs - rollout.log_probs)[rollout.mask]
    assert metrics["train/logp_gap_max"] == pytest.approx(float(gap.abs().max()))
    assert metrics["train/mismatch_kl"] == pytest.approx(float((gap.expm1() - gap).mean()))
    assert metrics["train/mismatch_weight"] == pytest.approx(float(gap.exp().clamp(max=3).mean()))
    assert metrics["train/approx_kl"] == pytest.approx(0, abs=1e-15)


def test_a_gap_that_is_not_finite_still_skips_the_update() -> None:
    rollout = sample()
    rollout.log_probs[0, 0] = -torch.inf
    agent = make_agent(RLOO, 4, mismatch="token-truncate", mismatch_max=None)
    before = agent.policy.logits.detach().clone()
    agent.update(rollout)
    assert agent.policy_optimizer.skipped == 1 and torch.equal(agent.policy.logits, before)


def test_in_16_bits_acting_is_weighed_with_what_training_says() -> None:
    envs = text_envs(4, group_size=4)
    settings = {"mismatch": "token-truncate", "num_epochs": 2, "episodes_per_update": 8, "device": "cpu"}
    agent = GRPO(tiny_policy("llama", envs, dtype="bfloat16"), envs, **settings)
    rollout = agent.collector.collect(agent.policy, 8, agent.generator)
    with torch.no_grad():
        trained = agent.policy.evaluate(rollout)["log_probs"]
    gap = (trained - rollout.log_probs).where(rollout.mask, 0)
    assert 1e-4 < float(gap.abs().max()) < 0.7
    batch = agent.prepare(rollout)
    torch.testing.assert_close(batch.importance[rollout.mask], gap.exp()[rollout.mask])
    assert torch.equal(batch.log_probs, trained.where(rollout.mask, 0))
    assert agent.update(rollout)["train/logp_gap_max"] == pytest.approx(float(gap.abs().max()), rel=1e-5)


@pytest.mark.parametrize(("mode", "more"), [(None, 0), ("token-mask", 1)])
def test_without_a_mismatch_nothing_is_computed_and_with_it_one_pass_more(mode: str | None, more: int) -> None:
    agent, calls = make_agent(PPO, mismatch=mode, num_epochs=3, num_minibatches=2), []
    evaluate = agent.policy.evaluate
    agent.policy.evaluate = lambda *args: calls.append(torch.is_grad_enabled()) or evaluate(*args)
    agent.update(sample())
    assert (calls.count(True), calls.count(False)) == (6, more)
