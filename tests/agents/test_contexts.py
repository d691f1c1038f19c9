"""Whatever episodes are read, together and in any layout, a step's law is that of its own context read by itself."""

import pytest
import torch
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st
from identity_checks import EXACT, assert_close
from tiny_models import MODELS, text_envs, tiny_policy

from agents import Rollout
from agents.language import reading
from agents.language.reading import WORTH_IT, plan_reading

VOCABULARY = 10


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


# Few symbols, so that beginnings repeat.
symbols = st.integers(0, 2)
episode = st.tuples(st.lists(symbols, min_size=1, max_size=4), st.lists(symbols, max_size=5))
batches = st.lists(episode, min_size=1, max_size=7).flatmap(
    lambda distinct: st.lists(st.sampled_from(distinct), min_size=1, max_size=10)
)


@drawn(40)
@given(
    st.sampled_from(MODELS), batches, st.booleans(), st.booleans(), st.integers(0, 3), st.sampled_from([WORTH_IT, 1e9])
)
@torch.no_grad()
def test_every_step_has_the_law_of_its_own_context(name, episodes, merge, share, columns, worth):
    """Also where a forest is more work than plain rows, and in episodes without a step."""
    policy = tiny_policy(name, text_envs(1), merge_rows=merge, share_prefixes=share)
    rollout = rollout_of(episodes, columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "WORTH_IT", worth)
        found = policy.evaluate(rollout)["log_probs"]
    wanted = torch.zeros_like(found)
    for row, (prompt, completion) in enumerate(episodes):
        for t, token in enumerate(completion):
            logits = policy.model(torch.tensor([prompt + completion[:t]])).logits[0, -1, :VOCABULARY]
            wanted[row, t] = logits.log_softmax(-1)[token]
    assert_close(found, wanted, EXACT, "together and alone")


@drawn(80)
@given(batches, st.sampled_from([3, 24, 6000]))
def test_a_forest_never_costs_more_than_plain_rows(episodes, width):
    shared, merged = (plan_reading(rollout_of(episodes), True, each) for each in (width, None))
    rows, wide = merged.ids.shape
    if shared.forest is None:
        assert torch.equal(shared.ids, merged.ids)
    else:
        assert shared.ids.numel() < WORTH_IT * rows * wide * (1 + wide / width)
