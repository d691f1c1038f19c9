"""Clipping, and identities 4, 5 and 7 for every agent: what the gradient of an update does not depend on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from diagonal import diagonal
from identity_checks import padded
from tabular import CarelessPolicy, P, S, T, V, gradient, make_agent, relative_error
from updates import (
    N,
    fail,
    paid_at_the_end,
    poisoned,
    sample,
    shuffled,
    some_cut_off,
    update_gradient,
    with_an_empty_row,
)

from agents import (
    A2C,
    CISPO,
    DAPO,
    DPPO,
    GRPO,
    GSPO,
    PPO,
    RLOO,
    SAPO,
    TOPR,
    VAPO,
    Agent,
    ClipCov,
    Distillation,
    DrGRPO,
    KLCov,
    ReinforceBaseline,
    ReinforcePlusPlus,
    Rollout,
)
from agents.algorithms import AGENTS
from agents.rollout import ERROR, OK

BETA = 0.3
K3 = {"kl_coef": BETA, "kl_estimator": "k3", "kl_in": "loss"}

# Clipping.

ASYMMETRIC = {"clip_range": 0.1, "clip_range_high": 0.4}
CLIPPED: dict[str, tuple[dict[str, Any], float, float]] = {  # settings, how far the ratio may fall and rise
    "GRPO": ({"cls": GRPO}, 0.2, 0.2),
    "DrGRPO": ({"cls": DrGRPO, "max_steps": T}, 0.2, 0.2),
    "DAPO": ({"cls": DAPO, "episodes_per_update": N}, 0.2, 0.28),
    "REINFORCE++": ({"cls": ReinforcePlusPlus}, 0.2, 0.2),
    "PPO": ({"cls": PPO, "gae_lambda": 0.5}, 0.2, 0.2),
    "GRPO, bounded": ({"cls": GRPO, "max_ratio": 1.25}, 0.2, 0.2),
    "PPO, asymmetric": ({"cls": PPO, **ASYMMETRIC}, 0.1, 0.4),
    "VAPO": ({"cls": VAPO, "length_alpha": 1.0}, 0.2, 0.28),
}


def moved(settings: dict[str, Any], rollout: Rollout) -> tuple[Agent, Rollout]:
    """Return an agent whose policy has moved since it prepared this rollout, and the rollout."""
    agent = make_agent(**settings)
    prepared = agent.prepare(rollout)
    with torch.no_grad():
        agent.policy.logits += 0.4 * torch.randn(P, S, V, generator=torch.Generator().manual_seed(5))
    return agent, prepared


def clipped_by_hand(
    logits: list[list[list[float]]], batch: Rollout, low: float, high: float, most: float = math.inf
) -> tuple[float, torch.Tensor, int]:
    """Return the clipped loss, its direction of ascent [P, S, V] and the clipped steps, number by number."""
    loss, ascent, count = 0.0, torch.zeros(P, S, V, dtype=torch.float64), 0
    for i in range(len(batch)):
        for t in range(int(batch.lengths[i])):
            prompt, state = divmod(int(batch.observations[i, t]), S)
            action = int(batch.actions[i, t])
            powers = [math.exp(logit) for logit in logits[prompt][state]]
            pi = [power / sum(powers) for power in powers]
            ratio = pi[action] / math.exp(float(batch.log_probs[i, t]))
            credit, weight = float(batch.advantages[i, t]), float(batch.weights[i, t])
            loss -= weight * min(min(ratio, most) * credit, max(1 - low, min(ratio, 1 + high)) * credit)
            if (credit > 0 and ratio > 1 + high) or (credit < 0 and (ratio < 1 - low or ratio > most)):
                count += 1
                continue
            for a in range(V):
                ascent[prompt, state, a] += weight * credit * ratio * ((a == action) - pi[a])
    return loss, ascent, count


@diagonal("case, seed", CLIPPED, [0, 1])
def test_away_from_the_sampling_policy_the_loss_is_the_clipped_one(
    case: tuple[dict[str, Any], float, float], seed: int
) -> None:
    settings, low, high = case
    agent, prepared = moved(settings, sample(seed))
    most = settings.get("max_ratio", math.inf)
    loss, wanted, count = clipped_by_hand(agent.policy.logits.tolist(), prepared, low, high, most)
    assert 2 < count < int(prepared.mask.sum()) / 2
    assert relative_error(gradient(agent, prepared), wanted) < 1e-12
    assert agent.loss(prepared)[1]["train/policy_loss"] == pytest.approx(loss, rel=1e-12, abs=1e-14)
    assert agent.updater.backward(prepared)["train/clip_fraction"] == count / int(prepared.mask.sum())


# Identities 4 and 5: what the gradient of an update does not depend on.

FAMILY: dict[str, dict[str, Any]] = {
    "RLOO, k1": {"cls": RLOO, "kl_coef": BETA},
    "GRPO, k3": {"cls": GRPO, **K3},
    "DrGRPO": {"cls": DrGRPO, "max_steps": T},
    "DAPO": {"cls": DAPO, "episodes_per_update": N},
    "DAPO, overlong": {"cls": DAPO, "episodes_per_update": N, "overlong_buffer": 2, "max_steps": T},
    "DAPO, masked": {"cls": DAPO, "episodes_per_update": N, "mask_truncated": True},
    "GSPO": {"cls": GSPO, "clip_range": 0.1, "clip_range_high": 0.1},
    "GSPO, batch": {"cls": GSPO, "scale": "batch", "max_ratio": 1.3, "kl_coef": BETA},
    "CISPO": {"cls": CISPO, "max_ratio": 1.3},
    "CISPO, batch": {"cls": CISPO, "scale": "batch"},
    "ReinforcePlusPlus": {"cls": ReinforcePlusPlus, "gamma": 0.9, "kl_coef": BETA},
    "SAPO": {"cls": SAPO, "gate_temperature_negative": 3.0},
    "DPPO": {"cls": DPPO, "max_moved": 0.05},
    "ClipCov": {"cls": ClipCov, "share": 0.1, "min_covariance": 0.1},
    "KLCov": {"cls": KLCov, "share": 0.1},
    "RLOO, mismatch": {"cls": RLOO, "mismatch": "sequence-truncate"},
    "PPO, mismatch": {"cls": PPO, "gae_lambda": 0.5, "mismatch": "token-mask", "off_policy_mask": 0.02},
    "GRPO, off-policy": {"cls": GRPO, "off_policy_mask": 0.02},
    "GRPO, k3 ratio": {"cls": GRPO, **K3, "kl_ratio": "differentiated"},
    "REINFORCE++-baseline": {"cls": ReinforcePlusPlus, "baseline": "group-mean"},
    "A2C": {"cls": A2C, "gae_lambda": 0.5, "gamma": 0.9},
    "PPO": {"cls": PPO, "gae_lambda": 0.5, "gamma": 0.9, "ent_coef": 0.1},
    "VAPO": {"cls": VAPO, "length_alpha": 1.0, "gamma": 0.9},
    "VAPO, warming up": {"cls": VAPO, "value_warmup": 1, "ent_coef": 0.1, "kl_coef": BETA, "kl_in": "loss"},
    "Distillation": {"cls": Distillation, "max_ratio": 1.3},
    "Distillation, centred": {"cls": Distillation, "estimator": "centred", "reward_coef": 0.5},
    "Distillation, exact": {"cls": Distillation, "estimator": "exact"},
    "PPO, clipped values": {"cls": PPO, "normalize_advantage": False, "clip_range_vf": 0.2, "kl_coef": BETA},
}
BASELINES = ("none", "running-mean", "batch-mean", "group-mean", "leave-one-out", "length-weighted", "optimal-token")
FAMILY |= {f"baseline {name}": {"cls": ReinforceBaseline, "baseline": name} for name in (*BASELINES, "value")}
FAMILY |= {
    f"baseline {name} by episode": {"cls": ReinforceBaseline, "baseline": name, "returns": "episode"}
    for name in BASELINES
}
FAMILY |= {
    f"{estimator} in the {place}": {
        "cls": ReinforceBaseline,
        "kl_coef": BETA,
        "kl_estimator": estimator,
        "kl_in": place,
    }
    for estimator, place in itertools.product(("k1", "k2", "k3", "exact"), ("reward", "loss"))
}
FAMILY = {cls.__name__: {"cls": cls} for cls in AGENTS.values()} | FAMILY
IN_GROUPS = [name for name, settings in FAMILY.items() if settings["cls"].compares_groups and "," not in name]
VARIANTS = [name for name in FAMILY if "," in name or name.endswith("-baseline")]  # an agent with another setting
each_agent = diagonal("settings", FAMILY, rare=VARIANTS)
LAYOUTS: dict[str, Callable[[Rollout], Rollout]] = {
    "rows in another order": shuffled,
    "more padding": lambda rollout: padded(rollout, junk=1),
    "NaN in masked cells": poisoned,
    "an empty row": with_an_empty_row,
    "an empty row alone": lambda rollout: with_an_empty_row(rollout, group=99),
    "an empty row with a verdict": lambda rollout: with_an_empty_row(rollout, status=OK),
}


@diagonal("settings, layout", FAMILY, LAYOUTS)
def test_the_layout_leaves_the_gradient_alone(settings: dict[str, Any], layout: Callable[[Rollout], Rollout]) -> None:
    for rollout in (sample(), some_cut_off(sample())):
        whole = update_gradient(settings, rollout)
        assert whole.any()
        assert relative_error(update_gradient(settings, layout(rollout)), whole) < 1e-12


@diagonal("settings, rows", FAMILY, [1, 5, N])
def test_micro_batches_leave_the_gradient_alone(settings: dict[str, Any], rows: int) -> None:
    rollout = some_cut_off(sample())
    parts = update_gradient(settings, rollout, micro_batch_size=rows)
    assert relative_error(parts, update_gradient(settings, rollout)) < 1e-12


@diagonal(
    "settings, rows", FAMILY, [1, 5], rare=[name for name in VARIANTS if not name.startswith(("GSPO", "CISPO", "PPO"))]
)
def test_micro_batches_leave_the_gradient_of_a_later_step_alone(settings: dict[str, Any], rows: int) -> None:
    """Ratios are not 1 there. GSPO's is of the whole row, and rows are never split."""
    gradients = []
    for size in (None, rows):
        agent, prepared = moved({**settings, "micro_batch_size": size}, some_cut_off(sample()))
        figures = agent.updater.backward(prepared)
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in agent.policy.parameters()]
        gradients.append((torch.cat([grad.flatten() for grad in grads]), figures.get("train/clip_fraction")))
    (whole, share), (parts, same) = gradients
    assert whole.any()
    assert relative_error(parts, whole) < 1e-12
    assert share == same


@each_agent
def test_what_a_policy_leaves_in_masked_cells_changes_nothing(settings: dict[str, Any]) -> None:
    rollout = some_cut_off(sample())
    found = update_gradient(settings, rollout, policy=CarelessPolicy)
    assert torch.equal(found, update_gradient(settings, rollout))


def half_informative() -> Rollout:
    """Return a sample whose first three groups have unequal rewards and whose last three have equal ones."""
    rows = torch.arange(N)
    return paid_at_the_end(sample(), (rows % 5 == 0) & (rows < 12))


@each_agent
def test_leaving_out_idle_rows_leaves_the_gradient_alone(settings: dict[str, Any]) -> None:
    rollout = half_informative()
    every = update_gradient(settings, rollout, skip_idle_rows=False)
    assert relative_error(update_gradient(settings, rollout), every) < 1e-12


@pytest.mark.parametrize("name", ["ReinforceBaseline", *IN_GROUPS])
def test_groups_with_equal_rewards_need_no_pass(name: str) -> None:
    agent = make_agent(**FAMILY[name])
    prepared = agent.prepare(half_informative())
    trained = prepared.groups[agent.updater.rows_to_train(agent.updater.with_gradient(prepared))]
    assert trained.unique().tolist() == [0, 1, 2]


@diagonal("settings, reward", FAMILY, [0.0, 1e6, torch.nan], rare=VARIANTS)
def test_failed_verdicts_teach_nothing(settings: dict[str, Any], reward: float) -> None:
    rollout, valid = fail(some_cut_off(sample()), reward)
    alone = update_gradient(settings, rollout.select(valid))
    assert alone.any()
    assert relative_error(update_gradient(settings, rollout), alone) < 1e-12


@each_agent
def test_a_rollout_of_failed_verdicts_alone_has_no_gradient(settings: dict[str, Any]) -> None:
    assert not update_gradient(settings, replace(sample(), status=torch.full((N,), ERROR))).any()


# Identity 7: equal rewards.


@diagonal(
    "name, reward",
    [
        *("ReinforceBaseline", *IN_GROUPS, "CISPO, batch", "REINFORCE++-baseline"),
        *(f"baseline {name}{how}" for name in BASELINES[3:] for how in ("", " by episode")),
    ],
    [0.0, 1.0, 0.1, 1 / 3, -7.3],
)
def test_equal_rewards_in_every_group_give_exactly_no_gradient(name: str, reward: float) -> None:
    """Groups differ in their reward, episodes in their length."""
    rollout = paid_at_the_end(sample(), reward + 0.7 * (sample().groups % 3).double())
    assert not update_gradient(FAMILY[name], rollout).any()


@pytest.mark.parametrize(
    "settings", [{"cls": ReinforcePlusPlus}, FAMILY["baseline batch-mean"], FAMILY["baseline batch-mean by episode"]]
)
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 1 / 3, -7.3])
def test_equal_rewards_in_a_rollout_give_exactly_no_gradient_to_who_compares_in_it(
    reward: float, settings: dict[str, Any]
) -> None:
    rollout = paid_at_the_end(sample(), torch.full((N,), reward, dtype=torch.float64))
    assert not update_gradient(settings, rollout).any()


@diagonal("cls, reward, lam", [A2C, PPO], [0.0, 1.0, 0.1, 1 / 3, -7.3], [0.0, 0.5, 1.0])
def test_rewards_that_the_critic_expects_give_exactly_no_gradient(cls: type[Agent], reward: float, lam: float) -> None:
    """An actor-critic compares with its critic, not with other episodes."""
    agent = make_agent(cls, gae_lambda=lam)
    agent.policy.table.data.fill_(reward)
    rollout = paid_at_the_end(sample(), torch.full((N,), reward, dtype=torch.float64))
    prepared = agent.prepare(rollout)
    assert not gradient(agent, prepared).any()
    assert not agent.policy.table.grad.any()


# Clip-Cov and KL-Cov.


def chosen_by_hand(batch: Rollout, share: float, low: float, high: float) -> list[tuple[int, int]]:
    """Return the steps with the largest (log π - mean)(A - mean) in the range, a share of all steps."""
    steps = [(i, t) for i in range(len(batch)) for t in range(int(batch.lengths[i]))]
    old, credit = batch.log_probs.tolist(), batch.advantages.tolist()
    mean_l, mean_a = (sum(table[i][t] for i, t in steps) / len(steps) for table in (old, credit))
    values = {(i, t): (old[i][t] - mean_l) * (credit[i][t] - mean_a) for i, t in steps}
    inside = [step for step in steps if low < values[step] < high and credit[step[0]][step[1]]]
    ordered = sorted(inside, key=lambda step: -values[step])
    least = values[ordered[max(1, int(share * len(steps))) - 1]]
    return [step for step in inside if values[step] >= least]


@pytest.mark.parametrize("share", [0.05, 0.3])
@pytest.mark.parametrize("cls", [ClipCov, KLCov])
def test_the_steps_with_the_largest_covariance_are_left_out_or_held_back(cls: type[Agent], share: float) -> None:
    low, high = (0.1, 1.2) if cls is ClipCov else (0.0, math.inf)
    settings = {"min_covariance": low, "max_covariance": high} if cls is ClipCov else {"penalty": 0.7}
    agent, prepared = moved({"cls": cls, "share": share, **settings}, sample())
    credit = make_agent(CISPO).prepare(sample()).advantages  # before some are left out
    chosen = chosen_by_hand(replace(prepared, advantages=credit), share, low, high)
    assert 1 < len(chosen) < int(prepared.mask.sum()) / 2
    logits, wanted = agent.policy.logits.tolist(), torch.zeros(P, S, V, dtype=torch.float64)
    for i in range(len(prepared)):
        for t in range(int(prepared.lengths[i])):
            prompt, state = divmod(int(prepared.observations[i, t]), S)
            action, powers = int(prepared.actions[i, t]), [math.exp(logit) for logit in logits[prompt][state]]
            pi = [power / sum(powers) for power in powers]
            ratio = pi[action] / math.exp(float(prepared.log_probs[i, t]))
            slope = ratio * float(credit[i, t])
            if (i, t) in chosen:
                slope = 0.0 if cls is ClipCov else slope - 0.7 * (ratio - 1)  # of KL(π_old || π), sampled by π_old
            for a in range(V):
                wanted[prompt, state, a] += float(prepared.weights[i, t]) * slope * ((a == action) - pi[a])
    assert relative_error(gradient(agent, prepared), wanted) < 1e-12
    assert agent.loss(prepared)[1]["train/clip_fraction"] == len(chosen)


def test_without_advantages_nothing_is_chosen() -> None:
    agent = make_agent(KLCov, share=0.5)
    assert not agent.prepare(paid_at_the_end(sample(), torch.ones(N))).marked.any()


# What the figure of clipped steps counts where no step by itself is clipped.


def summed(log_ratio: torch.Tensor, batch: Rollout) -> torch.Tensor:
    """Return log π(y)/μ(y) of whole episodes [N, 1]."""
    return log_ratio.where(batch.mask, 0).sum(1, keepdim=True)


def counted_by_gspo(log_ratio: torch.Tensor, batch: Rollout) -> torch.Tensor:
    ratio = (summed(log_ratio, batch) / batch.lengths[:, None]).exp()
    return torch.where(batch.advantages > 0, ratio > 1.1, (ratio < 0.9) & (batch.advantages < 0))


def counted_by_sapo(log_ratio: torch.Tensor, batch: Rollout) -> torch.Tensor:
    """Gates that are less than half open."""
    power = (-torch.where(batch.advantages > 0, 4.0, 8.0) * log_ratio.expm1()).exp()
    return 4 * power / (1 + power).square() < 0.5


COUNTED: dict[str, tuple[dict[str, Any], Callable[..., torch.Tensor]]] = {  # settings, steps [N, T] that count
    "GSPO": ({"cls": GSPO, "clip_range": 0.1, "clip_range_high": 0.1}, counted_by_gspo),
    "CISPO": ({"cls": CISPO, "max_ratio": 1.3}, lambda log_ratio, batch: log_ratio.exp() > 1.3),
    "SAPO": ({"cls": SAPO, "gate_temperature": 4.0, "gate_temperature_negative": 8.0}, counted_by_sapo),
    "TOPR": (
        {"cls": TOPR, "threshold": 2.0},
        lambda log_ratio, batch: (batch.returns < 2.0)[:, None] & (summed(log_ratio, batch) < -math.log(2)),
    ),
    "DPPO": (
        {"cls": DPPO, "max_moved": 0.1},
        lambda log_ratio, batch: log_ratio.expm1() * batch.log_probs.exp() * batch.advantages.sign() > 0.1,
    ),
}


@pytest.mark.parametrize(("settings", "counted"), COUNTED.values(), ids=COUNTED)
def test_the_clip_fraction_is_that_of_what_the_algorithm_holds_back(
    settings: dict[str, Any], counted: Callable[..., torch.Tensor]
) -> None:
    agent, prepared = moved(settings, sample())
    log_ratio = agent.policy.evaluate(prepared)["log_probs"].detach() - prepared.log_probs
    wanted = int((counted(log_ratio, prepared) & prepared.mask).sum())
    assert 2 < wanted < int(prepared.mask.sum())
    assert agent.loss(prepared)[1]["train/clip_fraction"] == wanted


def test_the_clip_fraction_counts_what_the_off_policy_mask_leaves_out() -> None:
    agent, prepared = moved({"cls": GRPO, "off_policy_mask": 0.05}, sample())
    alone = make_agent(GRPO)
    alone.policy.load_state_dict(agent.policy.state_dict())
    now = agent.policy.evaluate(prepared)["log_probs"]
    fall = (prepared.log_probs - now).where(prepared.mask, 0).sum(1) / prepared.lengths
    dropped = ((fall > 0.05) & (prepared.advantages[:, 0] < 0))[:, None] & prepared.mask
    wanted = int((dropped | (alone.is_clipped(now.detach(), prepared) & prepared.mask)).sum())
    assert 0 < int(dropped.sum()) < wanted
    assert agent.loss(prepared)[1]["train/clip_fraction"] == wanted
