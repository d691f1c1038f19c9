"""Rollouts: what follows an episode cut off, several rollouts as one, and one in parts."""

from dataclasses import fields
from itertools import pairwise

import pytest
import torch
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from rlenv.agents import Rollout
from rlenv.agents.rollout import join

SEEN = {"tensor": lambda x: x, "dict": lambda x: {"whole": x, "half": (x / 2)[..., :1]}}
kinds = pytest.mark.parametrize("kind", SEEN)
layouts = pytest.mark.parametrize("obs_from_actions", [True, False])


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


def leaves(value):
    return list(value.values()) if isinstance(value, dict) else [value]


@kinds
@layouts
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
            for ours, theirs in zip(leaves(getattr(joined, field.name)), leaves(mine), strict=True):
                found = ours[row, :steps] if field.name in stepwise else ours[row]
                assert ours.dtype == theirs.dtype and torch.equal(found, theirs[own]), field.name
                assert field.name not in stepwise or not ours[row, steps:].any(), field.name
    assert whole(joined.final_observations)[:, 0].tolist() == [0, 0, 399, 0, 599, 699]
    following = join(parts[::-1], obs_from_actions).after_truncation(obs_from_actions)
    assert following.mask[:, 0].tolist() == [True, True, False, True, False, False]
    joined.terminated[2] = True
    assert not joined.after_truncation(obs_from_actions).mask[2], "an end is one, also at the time limit"
    assert join(parts[:1] * 2, obs_from_actions).final_observations is None


# One rollout in parts.


def numbered(rows):
    """Return a rollout of this many episodes whose groups are their rows."""
    return rollout_of([1 + row % 3 for row in range(rows)], list(range(rows)))


def parts_of(rollout, *limits):
    return [part.groups.tolist() for part in rollout.split(*limits)]


limit = st.none() | st.integers(1, 12)


@drawn(40)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), limit, limit)
def test_parts_are_all_rows_in_order_within_their_limits_and_none_could_be_longer(costs, rows, budget):
    parts = parts_of(numbered(len(costs)), rows, torch.tensor(costs), budget)
    assert [row for part in parts for row in part] == list(range(len(costs)))

    def fits(part):
        cheap = budget is None or sum(costs[row] for row in part) <= budget
        return len(part) == 1 or (cheap and (rows is None or len(part) <= rows))

    assert all(part and fits(part) for part in parts)
    assert not any(fits([*part, after[0]]) for part, after in pairwise(parts))
