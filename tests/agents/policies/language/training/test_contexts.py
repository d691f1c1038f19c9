"""What is read of a rollout, against a dictionary of its contexts: each once, each token seeing its own past only."""

import pytest
import torch
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from agents import Rollout
from agents.policies.language.training import reading as contexts
from agents.policies.language.training.reading import WORTH_IT, plan_reading

WIDTHS = [3, 24, 6000]
FLAGS = [(merge, width) for merge in (False, True) for width in (None, *WIDTHS)]
flags = pytest.mark.parametrize(("merge", "width"), FLAGS)


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


def own_contexts(reading):
    """Return the tokens that each place sees, in order of their positions."""
    if reading.forest is None:
        return [tuple(row[: n + 1].tolist()) for row in reading.ids for n in range(len(row))]
    seen = []  # by each query of all parts
    for part in reading.forest.parts:
        causal = torch.ones(part.keys.shape[1], part.keys.shape[1], dtype=torch.bool).tril()
        visible = causal.expand(len(part.keys), 1, -1, -1) if part.visible is None else part.visible
        seen += [keys[own] for rows, keys in zip(visible[:, 0], part.keys, strict=True) for own in rows]
    nodes = [seen[place] for place in reading.forest.place.tolist()]
    assert all(reading.positions[0, each].tolist() == list(range(len(each))) for each in nodes)
    return [tuple(reading.ids[0, each].tolist()) for each in nodes]


def check(reading, episodes):
    """The reading says of every step what the step is, and each of its tokens sees its own context."""
    steps, seen = steps_of(episodes), own_contexts(reading)
    places, actions = reading.nodes[reading.edge_of_step].tolist(), reading.actions[reading.edge_of_step].tolist()
    assert actions == [chosen for _, chosen in steps]
    assert [seen[place] for place in places] == [context for context, _ in steps]
    if reading.forest is not None:
        assert sorted(seen) == sorted(contexts_of(episodes)), "each context is read once"


# Few symbols, so that beginnings repeat.
symbols = st.integers(0, 2)
episode = st.tuples(st.lists(symbols, min_size=1, max_size=4), st.lists(symbols, max_size=5))
batches = st.lists(episode, min_size=1, max_size=7).flatmap(
    lambda distinct: st.lists(st.sampled_from(distinct), min_size=1, max_size=10)
)


@drawn(80)
@given(batches, st.sampled_from(FLAGS), st.integers(0, 3), st.sampled_from([WORTH_IT, 1e9]))
def test_every_step_is_predicted_where_exactly_its_own_context_is_seen(episodes, chosen, columns, worth):
    """Also where a forest is more work than plain rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contexts, "WORTH_IT", worth)
        check(plan_reading(rollout_of(episodes, columns), *chosen), episodes)


@flags
def test_a_rollout_without_any_step_has_no_edge(merge, width):
    reading = plan_reading(rollout_of([([1, 2], []), ([3], [])]), merge, width)
    assert reading.ids.shape == (2, 1) and reading.forest is None
    assert len(reading.nodes) == len(reading.actions) == len(reading.edge_of_step) == 0


@drawn(80)
@given(batches, st.sampled_from(WIDTHS))
def test_a_forest_never_costs_more_than_plain_rows(episodes, width):
    shared, merged = (plan_reading(rollout_of(episodes), True, each) for each in (width, None))
    rows, wide = merged.ids.shape
    if shared.forest is None:
        assert torch.equal(shared.ids, merged.ids)
    else:
        assert shared.ids.numel() < WORTH_IT * rows * wide * (1 + wide / width)
