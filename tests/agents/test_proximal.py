"""Several optimizer steps a rollout: every row once a pass, the first step on policy, the seed in charge."""

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

from agents import AGENTS, Agent, Rollout
from agents.rollout import ERROR

OWN = {
    "ppo": {"gae_lambda": 0.9},
    "dr-grpo": {"max_steps": 3},
    "cispo": {"max_ratio": 1.2},
    "distillation": {"max_ratio": 1.2},
    "clip-cov": {"min_covariance": 0.1},
}
FAMILY = {name: (AGENTS[name], OWN.get(name, {})) for name in sorted(PASSES, key=lambda name: name != "ppo")}
CHOOSING = ("clip-cov", "kl-cov")  # their figure is the share of the steps that they choose, whatever the ratio
names = pytest.mark.parametrize("name", FAMILY)
few = drawn(15)


def proximal(name: str, epochs: int = 2, parts: int = 3, **kwargs: Any) -> Agent:
    cls, own = FAMILY[name]
    usual = {"episodes_per_update": 8, "lr_schedule": "constant", "learning_rate": 0.05, "max_grad_norm": 1e9}
    parts_of = {"num_epochs": epochs, "num_minibatches": parts}
    return make_agent(cls, group_size=4, **{**usual, **parts_of, **own, **kwargs})


def numbered(agent: Agent, episodes: int) -> Rollout:
    """Return prepared episodes whose `success` is their number."""
    rollout = random_episodes(agent.policy, groups=episodes, size=1)
    rollout.groups = torch.zeros_like(rollout.groups)
    return replace(agent.prepare(rollout), success=torch.arange(episodes).float())


def listen(agent: Agent) -> list[dict[str, float]]:
    """Record the figures of every optimizer step from now on."""
    figures: list[dict[str, float]] = []
    backward = agent.updater.backward
    agent.updater.backward = lambda batch: figures.append(backward(batch)) or figures[-1]
    return figures


# What each step trains on.


@few
@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 15))
def test_every_row_is_visited_exactly_once_a_pass(episodes: int, epochs: int, parts: int) -> None:
    agent = proximal("grpo", epochs, parts)
    prepared = numbered(agent, episodes)
    batches = list(agent.batches(prepared))
    wanted = min(parts, episodes)
    assert len(batches) == epochs * wanted
    for start in range(0, len(batches), wanted):
        seen = torch.cat([batch.success for batch in batches[start : start + wanted]])
        assert sorted(seen.tolist()) == list(range(episodes))
    sizes = {len(batch) for batch in batches}
    assert max(sizes) - min(sizes) <= 1 and min(sizes) >= 1


def test_passes_are_shuffled_anew() -> None:
    agent = proximal("grpo", 4, 3)
    orders = [tuple(batch.success.tolist()) for batch in agent.batches(numbered(agent, 9))]
    passes = [tuple(map(frozenset, orders[start : start + 3])) for start in range(0, 12, 3)]
    assert len(set(passes)) == 4


@diagonal("name, parts", list(FAMILY), [2, 5, 8])
def test_the_gradients_of_all_parts_average_to_that_of_the_rollout(name: str, parts: int) -> None:
    agent = proximal(name, 1, parts)
    prepared = agent.prepare(random_episodes(agent.policy, groups=2, size=4))
    whole = gradient(agent, prepared)
    assert whole.abs().max() > 1e-3
    mean = sum(gradient(agent, batch) for batch in agent.batches(prepared)) / parts
    assert_close(mean, whole, EXACT, "the mean over parts")


@pytest.mark.parametrize("parts", [5, 50])
def test_ppo_visits_every_step_that_counts_exactly_once_a_pass(parts: int) -> None:
    agent = proximal("ppo", 2, parts)
    rollout = random_episodes(agent.policy, groups=2, size=4)
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


@pytest.mark.parametrize("parts", [1, 3, 8])
def test_leaving_out_rows_that_teach_nothing_changes_no_step(parts: int) -> None:
    """Parts are made of all rows, whether they teach or not, so the same rows stay together."""
    results = []
    for skip in (True, False):
        agent = proximal("grpo", 2, parts, skip_idle_rows=skip, learning_rate=0.5)
        rollout = random_episodes(agent.policy, groups=2, size=4)
        rollout.rewards[:4] = 0.0
        figures = listen(agent)
        metrics = agent.update(rollout)
        assert len(figures) == 2 * parts
        logged = (metrics[f"train/{name}"] for name in ("clip_fraction", "approx_kl", "grad_norm"))
        results.append((agent.policy.logits.detach(), *logged))
    (skipped, *with_skip), (whole, *without) = results
    torch.testing.assert_close(skipped, whole, rtol=0, atol=1e-12)
    assert with_skip == pytest.approx(without, rel=1e-9) and with_skip[0] > 0


# The ratio.


@names
def test_the_first_step_is_on_policy_and_later_ones_are_not(name: str) -> None:
    agent = proximal(name, 3, 2, learning_rate=0.5)
    figures = listen(agent)
    agent.update(random_episodes(agent.policy, groups=2, size=4))
    first, *later = figures
    assert first["train/clip_fraction"] == 0.0 or name in CHOOSING
    assert abs(first["train/approx_kl"]) < EXACT and first["train/logp_gap_max"] < EXACT
    assert all(step["train/approx_kl"] > 1e-4 for step in later)
    assert any(step["train/clip_fraction"] > 0 for step in later)


def test_figures_are_means_over_steps_but_the_gap_is_the_first_ones() -> None:
    agent = proximal("grpo", 3, 2, learning_rate=0.5)
    figures = listen(agent)
    logged = agent.update(random_episodes(agent.policy, groups=2, size=4))
    for name in ("train/approx_kl", "train/clip_fraction", "train/policy_loss", "train/loss"):
        assert logged[name] == pytest.approx(sum(step[name] for step in figures) / len(figures)), name
    assert logged["train/logp_gap_max"] == figures[0]["train/logp_gap_max"] < figures[1]["train/logp_gap_max"]


# Acting and training have to agree, but only before the policy moves.


@names
def test_a_disagreement_on_the_first_step_stops_the_training(name: str) -> None:
    agent = proximal(name)
    rollout = random_episodes(agent.policy, groups=2, size=4)
    before = agent.policy.logits.detach().clone()
    with pytest.raises(RuntimeError, match=r"differ by 0\.1 nats"):
        agent.update(replace(rollout, log_probs=rollout.log_probs + 0.1))
    assert torch.equal(agent.policy.logits, before)


# Seeds.


def test_a_mask_of_episodes_sees_whole_episodes_of_control_too() -> None:
    for mask, longest in ((None, 1), (0.1, 2)):
        agent = AGENTS["ppo"]("MlpPolicy", "CartPole-v1", off_policy_mask=mask, episodes_per_update=4, device="cpu")
        shapes: list[int] = []
        batches = agent.batches
        agent.batches = lambda batch, batches=batches, shapes=shapes: (
            shapes.append(part.mask.shape[1]) or part for part in batches(batch)
        )
        agent.learn(total_episodes=4)
        assert len(shapes) == 16 and all(steps >= longest for steps in shapes) and (mask or max(shapes) == 1)
