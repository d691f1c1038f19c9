"""Identities 4, 5 and 7 in the tiny world: the gradient of a real update, and rollouts that must not change it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from tabular import AT_EVERY_STEP, P, S, T, TabularPolicy, make_agent, random_episodes

from agents import Agent, Batch, Rollout
from agents.rollout import ERROR, OK

N = 24  # episodes of a sample: 6 groups of 4


def update_gradient(settings: dict[str, Any], rollout: Rollout, **more: Any) -> torch.Tensor:
    """Return the gradient of all parameters that a real update makes from a rollout, before it is clipped."""
    agent = make_agent(**settings, max_grad_norm=1e9, **more)
    metrics = agent.update(rollout)
    assert all(math.isfinite(figure) for figure in metrics.values())
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in agent.policy.parameters()]
    found = torch.cat([grad.flatten() for grad in grads])
    assert found.isfinite().all()
    return found


def sample(seed: int = 0) -> Rollout:
    return random_episodes(TabularPolicy(), rewards=AT_EVERY_STEP, seed=seed)


def some_cut_off(rollout: Rollout) -> Rollout:
    """Return the rollout with every third episode cut off while it was looking at one state or another."""
    rows = torch.arange(len(rollout))
    cut = rows % 3 == 0
    return replace(rollout, terminated=~cut, truncated=cut, final_observations=(rows * 5 % (P * S)).where(cut, 0))


def paid_at_the_end(rollout: Rollout, rewards: torch.Tensor) -> Rollout:
    """Return the rollout with these rewards [N], each at the last step."""
    last = torch.arange(T) == rollout.lengths[:, None] - 1
    return replace(rollout, rewards=(rewards[:, None] * last).double())


def with_parts(agent: Agent, **constant: float) -> Agent:
    """Return the agent in an environment whose verdicts have the parts "right", R, and "short", 1/T_i.

    Args:
        agent: of the tiny world.
        constant: further parts that are the same for all.
    """
    prepare = agent.prepare

    def prepared(rollout: Rollout) -> Batch:
        parts = {"right": rollout.returns, "short": 1 / rollout.lengths.double()}
        parts |= {name: torch.full_like(rollout.returns, value) for name, value in constant.items()}
        return prepare(replace(rollout, extras={f"parts/{name}": part for name, part in parts.items()}))

    agent.prepare = prepared
    return agent


def shuffled(rollout: Rollout) -> Rollout:
    return rollout.select(torch.randperm(len(rollout), generator=torch.Generator().manual_seed(1)))


def poisoned(rollout: Rollout) -> Rollout:
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


def with_an_empty_row(rollout: Rollout, group: int = 0, status: int = ERROR) -> Rollout:
    """Return the rollout and one more row without a step, with or without a verdict."""
    longer = rollout.select(torch.tensor([*range(len(rollout)), 0]))
    longer.mask[-1], longer.status[-1], longer.groups[-1] = False, status, group
    return longer


def fail(rollout: Rollout, reward: float = 0.0) -> tuple[Rollout, torch.Tensor]:
    """Return a sample with failed verdicts (one group has no other, one has one left), and which rows have none."""
    status = torch.full((N,), OK)
    status[[1, 4, 5, 6, 7, 8, 9, 10, 17]] = ERROR
    failed = replace(rollout, status=status, rewards=rollout.rewards.where(status[:, None] == OK, reward))
    return failed, failed.ok
