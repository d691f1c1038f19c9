"""Rollouts: what follows an episode cut off, several as one, one in parts; figures of rollouts and evaluations."""

import math
from dataclasses import fields, replace
from itertools import pairwise

import pytest
import torch
from counting_env import KINDS, CountingEnv, CountingPolicy, counting_envs
from diagonal import diagonal
from drawn import drawn
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._pytree import tree_leaves

import rlenv  # noqa: F401
from rlenv._status import ERROR, NOT_APPLICABLE, OK, TIMEOUT
from rlenv.agents import Collector
from rlenv.agents.rollout import Batch, Rollout, join
from rlenv.agents.training.evaluation import evaluation_metrics
from rlenv.agents.training.metrics import critic_metrics, rollout_metrics

SEEN = {"tensor": lambda x: x, "dict": lambda x: {"whole": x, "half": (x / 2)[..., :1]}}


def rollout_of(lengths, groups=None, kind="tensor", obs_from_actions=False, cut=(), first=1):
    """Return episodes whose every cell says which episode and step it is of: 100 · episode + t, from `first` on."""
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    number = torch.arange(first, first + len(lengths))
    cells = (100 * number[:, None] + torch.arange(max(lengths))) * mask  # [N, T]
    seen = torch.stack([cells, -cells], -1).float()  # [N, T, 2]
    truncated = torch.zeros(len(lengths), dtype=torch.bool)
    truncated[list(cut)] = True
    final = torch.stack([100 * number + 99, -number], -1).float() * truncated[:, None]
    return Rollout(
        observations=SEEN[kind](seen[:, 0] if obs_from_actions else seen),
        actions=cells,
        log_probs=-cells.double(),
        rewards=cells / 7,
        mask=mask,
        terminated=~truncated,
        truncated=truncated,
        groups=torch.tensor(groups or [0] * len(lengths)),
        status=(number % 5 == 0).long(),
        success=number.float(),
        final_observations=SEEN[kind](final) if cut else None,
    )


def whole(obs):
    return obs["whole"] if isinstance(obs, dict) else obs


# Several rollouts as one.


def test_rollouts_of_which_no_episode_was_kept_add_nothing():
    """As when each rollout's groups without a signal are left out."""
    full, none = rollout_of([2, 1]), rollout_of([3]).select(torch.tensor([False]))
    for rollouts in ([none, full], [full, none, none]):
        joined = join(rollouts, False)
        assert torch.equal(joined.actions, full.actions) and torch.equal(joined.groups, full.groups)
    assert len(join([none, none], False)) == 0


@pytest.mark.parametrize("kind", SEEN)
@pytest.mark.parametrize("obs_from_actions", [True, False])
def test_rollouts_of_unequal_length_are_joined_row_by_row(kind, obs_from_actions):
    """Steps are padded with zeros; what follows is kept, also where nothing was cut off in one of them."""
    settings = {"kind": kind, "obs_from_actions": obs_from_actions}
    parts = [
        rollout_of([2, 1], **settings),
        rollout_of([5, 3, 4], cut=(0, 2), first=3, **settings),
        rollout_of([1], cut=(0,), first=6, **settings),
    ]
    joined = join(parts, obs_from_actions)
    assert joined.mask.shape == (6, 5) and len(joined) == 6 and joined.values is None and type(joined) is Rollout
    stepwise = {"actions", "log_probs", "rewards", "mask"} | ({"observations"} if not obs_from_actions else set())
    for row, (part, own) in enumerate((one, own) for one in parts for own in range(len(one))):
        steps = part.mask.shape[1]
        for field in fields(Rollout):
            mine = getattr(part, field.name)
            if mine is None or field.name == "groups":
                continue
            for ours, theirs in zip(tree_leaves(getattr(joined, field.name)), tree_leaves(mine), strict=True):
                found = ours[row, :steps] if field.name in stepwise else ours[row]
                assert ours.dtype == theirs.dtype and torch.equal(found, theirs[own]), field.name
                assert field.name not in stepwise or not ours[row, steps:].any(), field.name
    assert whole(joined.final_observations)[:, 0].tolist() == [0, 0, 399, 0, 599, 699]
    following = join(parts[::-1], obs_from_actions).after_truncation(obs_from_actions)
    assert following.mask[:, 0].tolist() == [True, True, False, True, False, False]
    joined.terminated[2] = True
    assert not joined.after_truncation(obs_from_actions).mask[2], "an end is one, also at the time limit"
    assert join(parts[:1] * 2, obs_from_actions).final_observations is None


limit = st.none() | st.integers(1, 12)


@drawn(40)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), limit, limit)
def test_parts_are_all_rows_in_order_within_their_limits_and_none_could_be_longer(costs, rows, budget):
    rollout = rollout_of([1 + row % 3 for row in range(len(costs))], [*range(len(costs))])  # its groups are its rows
    parts = [part.groups.tolist() for part in rollout.split(rows, torch.tensor(costs), budget)]
    assert [row for part in parts for row in part] == list(range(len(costs)))

    def fits(part):
        cheap = budget is None or sum(costs[row] for row in part) <= budget
        return len(part) == 1 or (cheap and (rows is None or len(part) <= rows))

    assert all(part and fits(part) for part in parts)
    assert not any(fits([*part, after[0]]) for part, after in pairwise(parts))


# Figures, also of what an environment does not say.


def batch_of(values, targets, **changes):
    """Return a batch of one episode per row, whose critic said `values` and is fitted to `targets` [N, T]."""
    targets, values = torch.tensor(targets), None if values is None else torch.tensor(values)
    ones = torch.ones_like(targets)
    rollout = Rollout.of_demonstrations(ones, ones, ones.bool())
    rollout = replace(rollout, values=values, groups=torch.arange(len(targets)))
    return Batch.of(rollout, advantages=ones, weights=ones, **changes).with_extras(value_targets=targets)


@pytest.mark.parametrize(
    ("values", "explained"),
    [
        ([[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]], 1.0),
        ([[6.0, 7.0], [8.0, 9.0], [0.0, 0.0]], 1.0),  # a constant error is not of the variance
        ([[5.0, 5.0], [5.0, 5.0], [1.0, 2.0]], 0.0),
        ([[-1.0, -2.0], [-3.0, -4.0], [0.0, 0.0]], -3.0),
    ],
)
def test_the_share_of_the_variance_that_a_critic_explains(values, explained):
    """The last episode has no verdict."""
    batch = batch_of(values, [[1.0, 2.0], [3.0, 4.0], [-9.0, -9.0]], status=torch.tensor([OK, OK, ERROR]))
    assert critic_metrics(batch) == {"train/explained_variance": pytest.approx(explained)}
    values = torch.linspace(0, 3, 99)[None]
    equal = values + (0.7 - values)  # returns of 0.7, with rounding
    assert critic_metrics(batch_of(None, [[1.0, 2.0]])) == {}
    assert critic_metrics(batch_of(values.tolist(), equal.tolist())) == {}


def test_a_part_of_the_reward_is_one_column_whatever_its_name_and_the_smallest_group_is_logged():
    rollout = batch_of([[0.0]] * 6, [[1.0]] * 6)
    rollout.extras = {'parts/a,"b"\n': torch.tensor([1.0, 3.0, 2.0, 2.0, 2.0, 9.0]), "parts/half right": torch.ones(6)}
    rollout.groups, rollout.status = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([OK, OK, OK, OK, OK, ERROR])
    metrics = rollout_metrics(rollout)
    assert metrics["rollout/group_size_min"] == 2
    assert metrics["rollout/parts/a__b__"] == 2.0 and metrics["rollout/parts/half right"] == 1.0


def test_the_share_of_sampled_tokens_that_are_in_no_text():
    rollout = batch_of(None, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [9.0, 9.0, 9.0]])
    rollout.actions = torch.tensor([[0, 5, 1], [3, 1, 0], [0, 0, 0]])
    rollout.mask = torch.tensor([[True, True, True], [True, True, False], [True, True, True]])
    rollout.status = torch.tensor([OK, OK, ERROR])
    assert rollout_metrics(rollout, hidden=(0, 3))["rollout/special_tokens"] == 2 / 5
    assert "rollout/special_tokens" not in rollout_metrics(rollout)


# What an environment does not say is unknown: Gymnasium fills the columns of infos with 0, False or None where an
# environment said nothing, and says so in a mask; those zeros are not failures.


EPISODES = 48


class Sparing(CountingEnv):
    """Episode i succeeds if i % 3 is 0, fails in four ways if odd, has level 2 if i % 5 is 2; else says nothing."""

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            info |= {"is_success": True} if self.episode % 3 == 0 else {}
            status = {1: "error", 5: "timeout", 9: "not_applicable"}.get(self.episode % 12)
            info |= {"verdict_status": status, "verdict_reason": "odd"} if status else {}
            info |= {"verifier_failed": True} if self.episode % 4 == 3 else {}
            info |= {"level": 2} if self.episode % 5 == 2 else {}
        return obs, reward, terminated, truncated, info


def collected(kind, slots, env=Sparing):
    return Collector(counting_envs(kind, slots, env=env), torch.device("cpu")).collect(CountingPolicy(), EPISODES)


@diagonal("kind, slots", KINDS, [1, 3, 16])
def test_what_an_episode_does_not_say_is_unknown_for_any_number_of_slots(kind, slots):
    rollout = collected(kind, slots)
    number = torch.arange(EPISODES)
    assert torch.equal(rollout.success.nan_to_num(-1), torch.where(number % 3 == 0, 1.0, -1.0))
    assert torch.equal(rollout.ok, number % 2 != 1), "an episode without a status has no failed verdict"
    statuses = {5: TIMEOUT, 9: NOT_APPLICABLE} | dict.fromkeys((1, 3, 7, 11), ERROR)
    assert rollout.status.tolist() == [statuses.get(episode % 12, OK) for episode in range(EPISODES)]
    assert not rollout.learnable[~rollout.ok].any()
    figures = rollout_metrics(rollout)
    assert (figures["rollout/failed_frac"], figures["rollout/error_frac"]) == (1 / 2, 1 / 3)
    known = (rollout.ok & (number % 3 == 0)).sum() / rollout.ok.sum()
    assert figures["rollout/success_rate"] == figures["rollout/success_rate/level_2"] == 1
    assert figures["rollout/success_known_frac"] == pytest.approx(known.item())
    evaluation = evaluation_metrics(rollout)
    assert evaluation["success_rate"] == 1 and evaluation["success_known"] == pytest.approx(known.item())


class Vague(CountingEnv):
    """Says how an episode went in every way there is."""

    def step(self, action):
        *step, info = super().step(action)
        return *step, info | {"is_success": (True, None, math.nan)[self.episode % 3]}


def test_success_that_is_none_nan_or_not_said_is_unknown():
    rollout = collected(AutoresetMode.NEXT_STEP, 1, Vague)
    assert torch.equal(rollout.success.nan_to_num(-1), torch.where(torch.arange(EPISODES) % 3 == 0, 1.0, -1.0))
    rollout = collected(AutoresetMode.NEXT_STEP, 4, CountingEnv)
    figures = rollout_metrics(rollout)
    assert "rollout/success_rate" not in figures and figures["rollout/success_known_frac"] == 0
    assert evaluation_metrics(rollout)["success_rate"] is None and "success_known" not in evaluation_metrics(rollout)
