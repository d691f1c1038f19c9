"""Identities 4, 5 and 7 for every agent: what the gradient of an update does not depend on."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from diagonal import diagonal
from identity_checks import padded
from tabular import P, S, TabularPolicy, gradient, make_agent, relative_error
from updates import FAMILY, N, paid_at_the_end, sample, some_cut_off

from rlenv._status import ERROR, OK
from rlenv.agents import A2C, PPO, RLOO, KLCov, ReinforcePlusPlus
from rlenv.agents.algorithms.reinforce_baseline import OF_A_GROUP
from rlenv.agents.training.update import may_be_idle


class CarelessPolicy(TabularPolicy):
    """Leaves NaN in masked cells."""

    def evaluate(self, rollout, *args):
        found = super().evaluate(rollout, *args)
        return {name: values.where(rollout.mask, torch.nan) for name, values in found.items()}

    def values(self, rollout):
        return super().values(rollout).where(rollout.mask, torch.nan)


def update_gradient(settings, rollout, **more):
    """Return the gradient of all parameters that a real update makes from a rollout, before it is clipped."""
    agent = make_agent(**settings, max_grad_norm=1e9, **more)
    metrics = agent.update(rollout)
    assert {name: figure for name, figure in metrics.items() if not math.isfinite(figure)} == {}
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in agent.policy.parameters()]
    found = torch.cat([grad.flatten() for grad in grads])
    assert found.isfinite().all()
    return found


def shuffled(rollout):
    return rollout.select(torch.randperm(len(rollout), generator=torch.Generator().manual_seed(1)))


def poisoned(rollout):
    """Return the rollout with NaN, other states and other actions in masked cells and after ended episodes."""
    seen = rollout.final_observations
    return replace(
        rollout,
        rewards=rollout.rewards.where(rollout.mask, torch.nan),
        log_probs=rollout.log_probs.where(rollout.mask, torch.nan),
        observations=rollout.observations.where(rollout.mask, P * S - 1),
        actions=rollout.actions.where(rollout.mask, 1),
        final_observations=None if seen is None else seen.where(rollout.truncated, P * S - 1),
    )


def with_an_empty_row(rollout, group=0, status=ERROR):
    """Return the rollout and one more row without a step, with or without a verdict."""
    longer = rollout.select(torch.tensor([*range(len(rollout)), 0]))
    longer.mask[-1], longer.status[-1], longer.groups[-1] = False, status, group
    return longer


def fail(rollout, reward=0.0):
    """Return a sample with failed verdicts (one group has no other, one has one left), and which rows have none."""
    status = torch.full((N,), OK)
    status[[1, 4, 5, 6, 7, 8, 9, 10, 17]] = ERROR
    failed = replace(rollout, status=status, rewards=rollout.rewards.where(status[:, None] == OK, reward))
    return failed, failed.ok


IN_GROUPS = [name for name, settings in FAMILY.items() if settings["cls"].compares_groups and "," not in name]
# An agent with another setting, and an estimator elsewhere.
VARIANTS = [name for name in FAMILY if name.endswith(("-baseline", " by episode", "in the loss")) or "," in name]
each_agent = diagonal("settings", FAMILY, rare=VARIANTS)
LAYOUTS = {  # of the rollout, and how it is trained on
    "rows in another order": (shuffled, {}),
    "more padding": (lambda rollout: padded(rollout, junk=1), {}),
    "NaN in masked cells": (poisoned, {}),
    "NaN of the policy in masked cells": (lambda rollout: rollout, {"policy": CarelessPolicy}),
    "an empty row": (with_an_empty_row, {}),
    "an empty row alone": (lambda rollout: with_an_empty_row(rollout, group=99), {}),
    "an empty row with a verdict": (lambda rollout: with_an_empty_row(rollout, status=OK), {}),
    "row by row": (lambda rollout: rollout, {"micro_batch_size": 1}),
    "five rows at once": (lambda rollout: rollout, {"micro_batch_size": 5}),
}


@diagonal("settings, layout", FAMILY, LAYOUTS)
def test_the_layout_leaves_the_gradient_alone(settings, layout):
    rollout, (changed, more) = some_cut_off(sample()), layout
    whole = update_gradient(settings, rollout)
    assert whole.any()
    assert relative_error(update_gradient(settings, changed(rollout), **more), whole) < 1e-12


def half_informative():
    """Return a sample whose first three groups have unequal rewards and whose last three have equal ones."""
    rows = torch.arange(N)
    return paid_at_the_end(sample(), (rows % 5 == 0) & (rows < 12))


@each_agent
def test_leaving_out_idle_rows_leaves_the_gradient_alone(settings):
    rollout = half_informative()
    every = update_gradient(settings, rollout, skip_idle_rows=False)
    assert relative_error(update_gradient(settings, rollout), every) < 1e-12


def mixed(*bases, **body):
    return type("Mixed", bases, body)


def test_advantages_may_be_whole_numbers():
    class Ranked(RLOO):
        def advantages(self, rollout):
            return rollout.mask.cumsum(1) * self.factor

    found = [update_gradient({"cls": type("Of", (Ranked,), {"factor": factor})}, sample()) for factor in (2, 2.0)]
    assert found[0].any() and relative_error(*found) < 1e-6


OWN = {"surrogate": lambda self, log_probs, batch: batch.advantages * log_probs}
IDLE = {  # whether a class may leave out rows without an advantage
    "says nothing of an inherited surrogate": (mixed(RLOO), True),
    "says nothing of its own surrogate": (mixed(RLOO, **OWN), False),
    "says nothing of its own loss": (mixed(RLOO, loss=RLOO.loss), False),
    "says it of its own surrogate": (mixed(RLOO, advantages_stay=True, **OWN), True),
    "inherits what another says": (mixed(mixed(RLOO, advantages_stay=True, **OWN)), True),
    "says it of the surrogate of another, who does not": (mixed(mixed(RLOO, **OWN), advantages_stay=True), False),
    "denies it": (mixed(mixed(RLOO, advantages_stay=False)), False),
    "has the surrogate of a mixin": (mixed(mixed(object, **OWN), RLOO), False),
}


@pytest.mark.parametrize("case", IDLE)
def test_rows_are_idle_only_if_the_class_with_the_surrogate_says_so(case):
    cls, idle = IDLE[case]
    assert cls.advantages_stay is idle
    assert may_be_idle(make_agent(cls, 4)) is idle


@diagonal("settings, reward", FAMILY, [0.0, 1e6, torch.nan], rare=VARIANTS)
def test_failed_verdicts_teach_nothing(settings, reward):
    rollout, valid = fail(some_cut_off(sample()), reward)
    alone = update_gradient(settings, rollout.select(valid))
    assert alone.any()
    assert relative_error(update_gradient(settings, rollout), alone) < 1e-12


def test_a_rollout_of_failed_verdicts_alone_has_no_gradient():
    for name in ("Reinforce", "PPO", "GRPO, k3", "DAPO", "ReinforcePlusPlus", "VAPO", "KLCov", "PKPO", "SDPO"):
        failed = replace(sample(), status=torch.full((N,), ERROR))
        assert not update_gradient(FAMILY[name], failed).any(), name


def test_where_every_episode_is_cut_off_masking_those_leaves_nothing():
    rollout = replace(sample(), truncated=torch.ones(N, dtype=torch.bool))
    assert not update_gradient(FAMILY["DAPO, masked"] | {"ent_coef": 0.1}, rollout).any()


# Identity 7: equal rewards.


EQUAL = (0.0, 1.0, 0.1, 1 / 3, -7.3)
OF_THE_ROLLOUT = {"ReinforcePlusPlus": {"cls": ReinforcePlusPlus}} | {
    name: FAMILY[name] for name in ("baseline batch-mean", "baseline batch-mean by episode")
}
OF_GROUPS = [
    *("ReinforceBaseline", *IN_GROUPS, "CISPO, batch", "REINFORCE++-baseline"),
    *(f"baseline {name}{how}" for name in OF_A_GROUP for how in ("", " by episode")),
]


@diagonal("name, reward", [*OF_GROUPS, *OF_THE_ROLLOUT], EQUAL)
def test_equal_rewards_in_every_group_give_exactly_no_gradient(name, reward):
    """Groups differ in their reward, but for who compares in the rollout; episodes differ in their length."""
    apart = 0.0 if name in OF_THE_ROLLOUT else 0.7
    rollout = paid_at_the_end(sample(), reward + apart * (sample().groups % 3).double())
    assert not update_gradient((FAMILY | OF_THE_ROLLOUT)[name], rollout).any()


@diagonal("cls, reward, lam", [A2C, PPO], EQUAL, [0.0, 0.5, 1.0])
def test_rewards_that_the_critic_expects_give_exactly_no_gradient(cls, reward, lam):
    """An actor-critic compares with its critic, not with other episodes."""
    agent = make_agent(cls, gae_lambda=lam)
    agent.policy.table.data.fill_(reward)
    rollout = paid_at_the_end(sample(), torch.full((N,), reward, dtype=torch.float64))
    prepared = agent.prepare(rollout)
    assert not gradient(agent, prepared).any()
    assert not agent.policy.table.grad.any()


def test_without_advantages_nothing_is_chosen():
    agent = make_agent(KLCov, share=0.5)
    assert not agent.prepare(paid_at_the_end(sample(), torch.ones(N))).extras["chosen"].any()
