"""What is read of a rollout, against a dictionary of its contexts: each once, each token seeing its own past only."""

import pytest
import torch
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from agents import Rollout
from agents.policies.language.training import reading as contexts
from agents.policies.language.training.reading import WORTH_IT, plan_reading

FLAGS = [(merge, share) for merge in (False, True) for share in (False, True)]
WIDTHS = [1, 4, 9, 1000]
flags = pytest.mark.parametrize(("merge", "share"), FLAGS)


def rollout_of(episodes, columns=0, junk=5):
    """Return a rollout of (prompt, completion) pairs, with junk wherever nothing counts.

    Args:
        episodes: what happened.
        columns: of the context that not even the longest episode needs.
        junk: a token.
    """
    width = max(len(prompt) + max(len(completion) - 1, 0) for prompt, completion in episodes) + columns
    steps = max([len(completion) for _, completion in episodes] + [1])
    tokens = torch.full((len(episodes), width), junk)
    actions = torch.full((len(episodes), steps), junk)
    for row, (prompt, completion) in enumerate(episodes):
        tokens[row, : len(prompt)] = torch.tensor(prompt)
        actions[row, : len(completion)] = torch.tensor(completion, dtype=torch.int64)
    mask = torch.arange(steps) < torch.tensor([len(completion) for _, completion in episodes])[:, None]
    length = torch.tensor([len(prompt) for prompt, _ in episodes])
    return Rollout.of_demonstrations({"tokens": tokens, "length": length}, actions, mask)


def steps_of(episodes):
    """Return every step in order of (episode, step), as the context before it and the token chosen."""
    return [
        (tuple(prompt) + tuple(completion[:t]), completion[t])
        for prompt, completion in episodes
        for t in range(len(completion))
    ]


def contexts_of(episodes):
    """Return every context that has to be read: what stands before a step, and all that begins it."""
    return {context[: n + 1] for context, _ in steps_of(episodes) for n in range(len(context))}


def own_context(reading, place):
    """Return the tokens that a place sees, in order of their positions, after checking that these are 0, 1, 2, ..."""
    row, column = divmod(place, reading.ids.shape[1])
    if reading.visible is None:
        return tuple(reading.ids[row, : column + 1].tolist())
    seen = reading.visible[row, 0, column].nonzero()[:, 0]
    seen = seen[reading.positions[row, seen].argsort()]
    assert reading.positions[row, seen].tolist() == list(range(len(seen))), "one token for every position"
    assert seen[-1] == column, "the last one is the place itself"
    return tuple(reading.ids[row, seen].tolist())


def check(reading, episodes):
    """The reading says of every step what the step is, and each of its tokens sees its own context."""
    steps = steps_of(episodes)
    places, actions = reading.nodes[reading.edge_of_step].tolist(), reading.actions[reading.edge_of_step].tolist()
    assert len(places) == len(steps)
    for place, action, (context, chosen) in zip(places, actions, steps, strict=True):
        assert action == chosen
        assert own_context(reading, place) == context
    if reading.visible is not None:
        rows, width = reading.ids.shape
        assert reading.positions.shape == (rows, width) and reading.visible.shape == (rows, 1, width, width)
        assert reading.visible.diagonal(dim1=2, dim2=3).all(), "a token that sees nothing divides 0 by 0"


# Few symbols, so that beginnings repeat.
symbols = st.integers(0, 2)
episode = st.tuples(st.lists(symbols, min_size=1, max_size=4), st.lists(symbols, max_size=5))
batches = st.lists(episode, min_size=1, max_size=7).flatmap(
    lambda distinct: st.lists(st.sampled_from(distinct), min_size=1, max_size=10)
)


@drawn(80)
@given(batches, st.sampled_from(WIDTHS), st.sampled_from(FLAGS), st.integers(0, 3), st.sampled_from([WORTH_IT, 1e9]))
def test_every_step_is_predicted_where_exactly_its_own_context_is_seen(episodes, width, chosen, columns, worth):
    """Also where trees are more work than plain rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contexts, "WORTH_IT", worth)
        check(plan_reading(rollout_of(episodes, columns), *chosen, width), episodes)


@drawn(60)
@given(batches)
def test_in_one_row_of_trees_each_context_is_read_once(episodes):
    episodes = [([7] * 12 + prompt, done) for prompt, done in episodes] * 2 + [([7] * 12, [0]), ([7] * 12 + [8], [0])]
    reading = plan_reading(rollout_of(episodes), True, True, 10_000)
    assert reading.visible is not None and reading.ids.shape == (1, len(contexts_of(episodes)))
    check(reading, episodes)


@flags
def test_a_rollout_without_any_step_has_no_edge(merge, share):
    reading = plan_reading(rollout_of([([1, 2], []), ([3], [])]), merge, share, 9)
    assert reading.ids.shape == (2, 1) and reading.visible is None
    assert len(reading.nodes) == len(reading.actions) == len(reading.edge_of_step) == 0


@drawn(80)
@given(batches, st.sampled_from(WIDTHS))
def test_trees_never_cost_more_than_plain_rows(episodes, width):
    def cost(reading):
        rows, wide = reading.ids.shape
        return rows * wide * (6 * width + wide)

    shared, merged = (plan_reading(rollout_of(episodes), True, share, width) for share in (True, False))
    if shared.visible is None:
        assert torch.equal(shared.ids, merged.ids)
    else:
        assert cost(shared) <= WORTH_IT * cost(merged) < cost(merged)


@flags
@pytest.mark.parametrize("width", WIDTHS)
def test_what_stands_beside_prompts_and_actions_has_no_effect(merge, share, width):
    episodes = [([7] * 9 + [1, 2], [3, k]) for k in range(3)] + [([7] * 9 + [1], [2, 3, 1])]
    readings = [plan_reading(rollout_of(episodes, *beside), merge, share, width) for beside in ((0, 0), (4, 6))]
    assert readings[0].ids.shape == readings[1].ids.shape
    for name in ("nodes", "actions", "edge_of_step"):
        assert torch.equal(*(getattr(reading, name) for reading in readings))
    check(readings[1], episodes)
