"""The identities of the design as functions that raise AssertionError.

`tests/agents/test_identities.py` asserts that the code passes them, `tests/plant_mutations.py` that planted bugs do
not, by a factor of at least 100: it has them called with a tolerance a hundred times as large.
"""

from __future__ import annotations

import copy
import os
from dataclasses import fields, replace
from typing import Any

import torch
from gaps import plain_laws

from agents import Agent, Collector, LanguageModelPolicy, Policy, Rollout
from agents.rollout import map_obs

EXACT, ROUNDING = 1e-12, 1e-5  # nats, in float64 and float32
SLACK = float(os.environ.get("RLENV_TEST_SLACK", 1))  # 100 if a bug is planted, see tests/plant_mutations.py


def assert_close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float, what: str) -> None:
    gap, tolerance = (ours.double() - theirs.double()).abs().max().item(), SLACK * tolerance
    assert gap <= tolerance, f"{what}: differ by {gap:.3g}, allowed {tolerance:.3g}"


def collect(policy: Policy, envs: Any, episodes: int = 24, seed: int = 0) -> Rollout:
    """Return a rollout that depends on nothing but the seed."""
    collector = Collector(envs, torch.device("cpu"))
    collector.seed(seed)
    rollout = collector.collect(policy, episodes, torch.Generator().manual_seed(seed))
    assert rollout is not None
    return rollout


# Identity 1: the policy that acts is the policy that is trained.


def check_acting_equals_training(policy: LanguageModelPolicy, envs: Any, tolerance: float, episodes: int = 24) -> None:
    """Log-probabilities while acting = while training, over prompts of unequal length and slots that restart."""
    rollout = collect(policy, envs, episodes)
    assert rollout.lengths.unique().numel() > 2, "the episodes must differ in length"
    with torch.no_grad():
        log_probs = policy.evaluate(rollout)["log_probs"]
    assert_close(log_probs[rollout.mask], rollout.log_probs[rollout.mask], tolerance, "acting and training")


def check_plain_reference(policy: LanguageModelPolicy, envs: Any, tolerance: float) -> None:
    """Both = log_softmax(model(ids).logits / T), each episode read by itself, without cache or padding."""
    rollout = collect(policy, envs, 12)
    plain, _ = plain_laws(policy, rollout)
    with torch.no_grad():
        trained = policy.evaluate(rollout)["log_probs"]
    assert_close(rollout.log_probs[rollout.mask], plain[rollout.mask], tolerance, "acting and the plain reference")
    assert_close(trained[rollout.mask], plain[rollout.mask], tolerance, "training and the plain reference")


def check_running_equals_fresh(policy: LanguageModelPolicy, envs: Any, tolerance: float, steps: int = 42) -> None:
    """act(obs, running state) = act(obs, fresh state) at every step, slots restarting all the while."""
    generator, restarts = torch.Generator().manual_seed(0), 0
    starts = torch.ones(envs.num_envs, dtype=torch.bool)
    obs, _ = envs.reset(seed=0)
    state = policy.initial_state(envs.num_envs)
    for _ in range(steps):
        same_noise = generator.clone_state()
        actions, log_probs, state = policy.act(obs, state, starts, generator=generator)
        again, fresh, _ = policy.act(obs, None, torch.ones_like(starts), generator=same_noise)
        assert_close(log_probs, fresh, tolerance, "running and fresh state")
        assert torch.equal(actions, again)
        obs, _, starts, _, _ = envs.step(actions)
        if starts.any():
            restarts += not starts.all()
            obs, _ = envs.reset(options={"reset_mask": starts})
    assert restarts > 3, "some slots must restart while others run on"


# Identity 4: the gradient does not depend on how the rows are laid out.


def gradient(agent: Agent, rollout: Rollout) -> torch.Tensor:
    """Return the gradient of a real update, flat; the agent's weights are put back."""
    weights = copy.deepcopy(agent.policy.state_dict())
    optimizer = copy.deepcopy(agent.optimizer.state_dict())
    agent.update(rollout)
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in agent.policy.parameters() if p.requires_grad]
    flat = torch.cat([part.flatten() for part in parts]).clone()
    agent.policy.load_state_dict(weights)
    agent.optimizer.load_state_dict(optimizer)
    return flat


def check_same_gradient(agent: Agent, rollout: Rollout, other: Rollout, tolerance: float, what: str) -> None:
    """Two layouts of one rollout have one gradient; the gap is relative to the largest entry."""
    ours, theirs = gradient(agent, rollout), gradient(agent, other)
    assert ours.abs().max() > 1e-3, "there must be a gradient"
    assert_close(theirs / ours.abs().max(), ours / ours.abs().max(), tolerance, what)


def check_micro_batches(agent: Agent, rollout: Rollout, tolerance: float) -> None:
    agent.micro_batch_size = None
    whole = gradient(agent, rollout)
    for rows in (1, 2, 3):
        agent.micro_batch_size = rows
        part = gradient(agent, rollout)
        assert_close(part / whole.abs().max(), whole / whole.abs().max(), tolerance, f"micro-batches of {rows}")
    agent.micro_batch_size = None


def double(rollout: Rollout) -> Rollout:
    """Return the rollout with rewards in double precision, so that sums in another order agree to 1e-12."""
    return replace(rollout, rewards=rollout.rewards.double(), log_probs=rollout.log_probs.double())


def padded(rollout: Rollout, steps: int = 5, columns: int = 7, junk: int = 3) -> Rollout:
    """Return the rollout with more masked steps and, for text, more columns of junk right of the prompts."""

    def widen(value: torch.Tensor, by: int, fill: Any) -> torch.Tensor:
        return torch.cat([value, value.new_full((value.shape[0], by, *value.shape[2:]), fill)], dim=1)

    wider = {}
    for field in fields(rollout):
        value = getattr(rollout, field.name)
        if isinstance(value, torch.Tensor) and value.dim() >= 2 and field.name != "observations":
            wider[field.name] = widen(value, steps, False if value.dtype is torch.bool else junk)
    observations = rollout.observations
    if isinstance(observations, dict):  # text: the first observations, or the final tokens
        column = torch.arange(observations["tokens"].shape[1])
        known = observations["length"]
        if rollout.positions is not None:  # up to the last action, replies included
            known = rollout.positions.where(rollout.mask, 0).amax(1)
        inside = column < known[:, None]
        tokens = widen(observations["tokens"].where(inside, torch.tensor(junk)), columns, junk)
        wider["observations"] = {**observations, "tokens": tokens}
    else:
        wider["observations"] = map_obs(lambda x: widen(x, steps, junk), observations)
    return replace(rollout, **wider)


def poisoned(rollout: Rollout) -> Rollout:
    """Return the rollout with NaN in the masked cells of rewards and log-probabilities."""
    return replace(
        rollout,
        rewards=rollout.rewards.where(rollout.mask, torch.nan),
        log_probs=rollout.log_probs.where(rollout.mask, torch.nan),
    )


# Identity 6: what was played is what is trained.


def check_counting_rollout(rollout: Rollout, lengths: list[int], first: int = 0) -> None:
    """Every stored step of a rollout from `CountingEnv` is the right one.

    Args:
        rollout: its observations say (episode, t), its reward is `reward_at`.
        lengths: how long each episode number is.
        first: number of the first episode, counted over everything the environment has ever started.
    """
    from counting_env import reward_at

    n, longest = rollout.mask.shape
    wanted = torch.tensor(lengths[first : first + n])
    assert torch.equal(rollout.lengths, wanted), f"lengths {rollout.lengths.tolist()}, wanted {wanted.tolist()}"
    assert torch.equal(rollout.mask, torch.arange(longest) < wanted[:, None])
    for i in range(n):
        t = torch.arange(int(wanted[i]))
        row = rollout.observations[i, : len(t)]
        assert torch.equal(row[:, 0].long(), torch.full_like(t, first + i)), f"episode {i} holds steps of others"
        assert torch.equal(row[:, 1].long(), t), f"the steps of episode {i} are out of order"
        rewards = torch.tensor([reward_at(first + i, int(k), int(wanted[i])) for k in t])
        assert torch.equal(rollout.rewards[i, : len(t)], rewards), f"the rewards of episode {i}"
