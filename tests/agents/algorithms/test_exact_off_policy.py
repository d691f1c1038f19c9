"""Identity 2 where the episodes are another policy's: acting that differs from training, later passes, KL ratios.

The expectations are exact: every group of K episodes, with the probability of the policy that sampled, goes through the
real agent. The closed forms are in tests/support/off_policy.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from diagonal import diagonal
from family import LENGTHS, rollout_gradient
from off_policy import (
    clip_cov_gradient,
    dppo_gradient,
    episode_ratios,
    mean_fall,
    sapo_gradient,
    signed_credit,
    token_ratios,
    topr_gradient,
    weighted_gradient,
)
from tabular import (
    AT_THE_END,
    MASK,
    P,
    TabularPolicy,
    every_group,
    expected_batch_gradient,
    gradient,
    make_agent,
    moved_policy,
    off_policy_kl_gradient,
    relative_error,
    true_gradient,
)

from agents import DPPO, GRPO, GSPO, RLOO, SAPO, TOPR, Agent, Batch, ClipCov, DrGRPO, KLCov
from agents.estimators import aggregation
from agents.estimators.kl import RATIOS
from agents.estimators.mismatch import MODES

TOLERANCE = 1e-10


class SpreadDPPO(DPPO):
    """DPPO whose steps are averaged over each episode, so that no weight looks at the rollout."""

    weights = staticmethod(aggregation.sequence_mean)


def prepared_and_share(agent: Agent, sampler: TabularPolicy, size: int) -> tuple[Batch, torch.Tensor]:
    """Return every group that the sampler may draw, prepared by the agent, and what each row's weight is times."""
    rollout, probability = every_group(sampler, AT_THE_END, size)
    return agent.prepare(rollout), (len(rollout) / (P * size) * probability)[:, None]


def later_gradient(agent: Agent, size: int) -> tuple[torch.Tensor, TabularPolicy]:
    """Return the expected gradient of a later pass, and the policy that sampled: the weights have moved since."""
    prepared, share = prepared_and_share(agent, agent.policy, size)
    sampler = moved_policy(agent.policy)
    return gradient(agent, replace(prepared, weights=prepared.weights * share)), sampler


# A first pass: the ratio is 1.


def test_kl_cov_is_the_token_mean_where_the_ratio_is_one() -> None:
    """By the coefficients alone, after checking that the penalty adds none."""
    agent = make_agent(KLCov, 2, episodes_per_update=P * 2)
    prepared = agent.prepare(every_group(agent.policy, AT_THE_END, 2)[0])
    assert prepared.marked is not None and prepared.marked.any()
    unmarked = gradient(agent, replace(prepared, marked=torch.zeros_like(prepared.marked)))
    assert torch.equal(gradient(agent, prepared), unmarked)
    agent.chosen = lambda batch: torch.zeros_like(batch.mask)  # type: ignore[method-assign]
    found = expected_batch_gradient(agent, AT_THE_END, 2, range(P))
    assert relative_error(found, rollout_gradient(agent.policy, 2, False, True)) < TOLERANCE


@pytest.mark.slow  # every joint rollout by itself
@pytest.mark.parametrize(("share", "low", "high"), [(0.2, 0.2, 5.0), (0.01, 0.0, 0.5)])
def test_clip_cov_is_the_token_mean_less_some_steps(share: float, low: float, high: float) -> None:
    settings = {"share": share, "min_covariance": low, "max_covariance": high, "episodes_per_update": P * 2}
    agent = make_agent(ClipCov, 2, **settings)
    found = expected_batch_gradient(agent, AT_THE_END, 2)
    assert relative_error(found, clip_cov_gradient(agent.policy, share, low, high)) < TOLERANCE
    assert relative_error(found, rollout_gradient(agent.policy, 2, False, True)) > 0.01


# Later passes.


@pytest.mark.parametrize(("positive", "negative"), [(1.0, 1.05), (5.0, 20.0)])
def test_sapo_away_from_the_sampling_policy(positive: float, negative: float) -> None:
    agent = make_agent(SAPO, 2, gate_temperature=positive, gate_temperature_negative=negative)
    found, sampler = later_gradient(agent, 2)
    assert relative_error(found, sapo_gradient(agent.policy, sampler, 2, positive, negative)) < TOLERANCE
    assert relative_error(found, sapo_gradient(agent.policy, sampler, 2, negative, positive)) > 1e-3


@pytest.mark.parametrize(("most", "bound"), [(0.05, 20.0), (0.15, 1.3)])
def test_dppo_away_from_the_sampling_policy(most: float, bound: float) -> None:
    agent = make_agent(SpreadDPPO, 2, max_moved=most, max_ratio=bound)
    found, sampler = later_gradient(agent, 2)
    assert relative_error(found, dppo_gradient(agent.policy, sampler, 2, most, bound)) < TOLERANCE
    assert relative_error(found, dppo_gradient(agent.policy, sampler, 2, 1.0, bound)) > 0.1


@pytest.mark.parametrize("baseline", [0.5, 0.2])
def test_topr_away_from_the_sampling_policy(baseline: float) -> None:
    agent = make_agent(TOPR, threshold=baseline)
    found, sampler = later_gradient(agent, 1)
    assert relative_error(found, topr_gradient(agent.policy, sampler, baseline)) < TOLERANCE
    assert relative_error(found, topr_gradient(sampler, sampler, baseline)) > 0.1


@pytest.mark.parametrize("most", [0.02, 0.1])
def test_the_off_policy_mask_drops_bad_episodes_that_fell(most: float) -> None:
    agent = make_agent(GRPO, 2, off_policy_mask=most, clip_range=0.99, clip_range_high=0.99, num_epochs=2)
    found, sampler = later_gradient(agent, 2)
    ratio = token_ratios(agent.policy, sampler)
    free = ratio.where(ratio < 1.99, 0)  # of good steps; bad ones would stop below 0.01
    assert float(ratio.min()) > 0.01
    kept = ratio * (mean_fall(agent.policy, sampler) <= most)
    assert relative_error(found, weighted_gradient(agent.policy, *signed_credit(sampler, 2), free, kept)) < TOLERANCE
    assert relative_error(found, weighted_gradient(agent.policy, *signed_credit(sampler, 2), free, ratio)) > 0.05


# Another policy acts.


def acted_gradient(agent: Agent, size: int) -> tuple[torch.Tensor, TabularPolicy]:
    """Return the expected gradient of a first pass whose episodes another policy sampled, and that policy."""
    sampler = moved_policy(agent.policy)
    prepared, share = prepared_and_share(agent, sampler, size)
    return gradient(agent, replace(prepared, weights=prepared.weights * share)), sampler


@pytest.mark.parametrize(("cls", "factor"), [(RLOO, 1.0), (DrGRPO, 1 / 2)], ids=["rloo", "dr-grpo"])
def test_unbounded_weights_of_episodes_make_the_gradient_exact_again(cls: type[Agent], factor: float) -> None:
    """Each of the other episodes is the acting policy's, but a baseline need not be the training policy's."""
    settings: dict[str, Any] = {"max_steps": 1} if cls is DrGRPO else {}
    agent = make_agent(cls, 2, mismatch="sequence-truncate", mismatch_max=None, **settings)
    found, _ = acted_gradient(agent, 2)
    assert relative_error(found, factor * true_gradient(agent.policy)) < TOLERANCE


BOUNDS = {"as they are": (0.0, 3.0), "tight": (0.8, 1.2)}


@diagonal("mode, bounds, cls", MODES, BOUNDS, [RLOO, GRPO, SAPO, GSPO])
def test_weights_are_truncated_or_masked_by_step_or_by_episode(
    mode: tuple[Any, ...], bounds: tuple[float, float], cls: type[Agent]
) -> None:
    """With a ratio, that one is 1: the old log-probabilities are those of a training pass."""
    low, high = bounds
    name = next(name for name, each in MODES.items() if each is mode)
    agent = make_agent(cls, 2, mismatch=name, mismatch_min=low, mismatch_max=high)
    found, sampler = acted_gradient(agent, 2)
    ratio = (token_ratios if name.startswith("token") else episode_ratios)(agent.policy, sampler)
    inside = (ratio >= low) & (ratio <= high)
    weight = ratio.clamp(low, high) if name.endswith("truncate") else ratio * inside
    if cls is GSPO:  # the steps share one ratio, and the mean of their weights with it
        weight = (weight.where(MASK, 0).sum(-1) / LENGTHS)[..., None].expand_as(weight)
    good, bad = signed_credit(sampler, 2, cls is not RLOO, cls is not RLOO)
    wanted = (2 if cls is RLOO else 1) * weighted_gradient(agent.policy, good, bad, weight, weight)
    assert relative_error(found, wanted) < TOLERANCE


def test_in_a_later_pass_the_ratio_starts_from_the_training_pass_and_the_weight_stays() -> None:
    agent = make_agent(SAPO, 2, mismatch="token-truncate", mismatch_max=1.2, num_epochs=2)
    actor = moved_policy(agent.policy)
    prepared, share = prepared_and_share(agent, actor, 2)
    old = moved_policy(agent.policy, seed=6)
    found = gradient(agent, replace(prepared, weights=prepared.weights * share))
    weight = token_ratios(old, actor).clamp(max=1.2)
    ratio = token_ratios(agent.policy, old)

    def slope(tau: float) -> torch.Tensor:
        power = (-tau * (ratio - 1)).exp()
        return weight * 4 * power / (1 + power).square() * ratio

    wanted = weighted_gradient(agent.policy, *signed_credit(actor, 2), slope(1.0), slope(1.05))
    assert relative_error(found, wanted) < TOLERANCE


# The KL in the loss, in later passes.


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_every_ratio_of_the_kl_does_what_its_table_says(estimator: str, ratio: str) -> None:
    agent = make_agent(RLOO, 2, kl_coef=1.0, kl_estimator=estimator, kl_in="loss", kl_ratio=ratio)
    rollout, probability = every_group(agent.policy, torch.zeros_like(AT_THE_END), 2)
    prepared, share = agent.prepare(rollout), (len(rollout) / (P * 2) * probability)[:, None]
    sampler = moved_policy(agent.policy)
    found = gradient(agent, replace(prepared, weights=prepared.weights * share))
    reference = agent.anchor.reference
    assert relative_error(found, off_policy_kl_gradient(estimator, ratio, agent.policy, sampler, reference)) < TOLERANCE


@pytest.mark.parametrize(("estimator", "ratio"), [("k2", "constant"), ("k3", "differentiated"), ("k2", "none")])
def test_where_another_policy_acts_the_ratio_of_the_kl_starts_from_that_one(estimator: str, ratio: str) -> None:
    settings: dict[str, Any] = {"mismatch": "token-truncate", "mismatch_max": None}
    with_kl = make_agent(RLOO, 2, kl_coef=1.0, kl_estimator=estimator, kl_in="loss", kl_ratio=ratio, **settings)
    (found, sampler), (without, _) = acted_gradient(with_kl, 2), acted_gradient(make_agent(RLOO, 2, **settings), 2)
    wanted = off_policy_kl_gradient(estimator, ratio, with_kl.policy, sampler, with_kl.anchor.reference)
    assert relative_error(found - without, wanted) < TOLERANCE
