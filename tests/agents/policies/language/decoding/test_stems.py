"""Decode steps read a beginning shared by several rows once; log-probabilities stay those of training."""

import pytest
import torch
from identity_checks import EXACT, assert_close, collect
from tiny_models import text_envs, tiny_policy

from agents.policies.language.decoding import decoder as decoding
from agents.policies.language.decoding.prefix_attention import Stems

PROMPTS = ["dad", "hgfedcba", "bbb", "acegbd", "fffff", "cdefgh"]  # a stem is shorter than each


@pytest.fixture
def watched(monkeypatch):
    """Use stems of any size; return the number of groups and rows of each arrangement."""
    seen, arrange = [], Stems.arrange

    def watch(stems, group_of_row):
        seen.append((stems.num_groups, len(group_of_row)))
        return arrange(stems, group_of_row)

    monkeypatch.setattr(decoding, "WORTH_IT", 1)
    monkeypatch.setattr(Stems, "arrange", watch)
    return seen


@pytest.mark.parametrize("name", ["llama", "mistral"])
@pytest.mark.parametrize("slots", [24, 8])
def test_acting_with_stems_equals_training(name, slots, watched):
    envs = text_envs(slots, group_size=4, problems=PROMPTS)  # prompts and episodes of unequal length
    policy = tiny_policy(name, envs, temperature=1.3)
    rollout = collect(policy, envs)
    assert rollout.lengths.unique().numel() > 2
    assert {groups for groups, _ in watched} == {slots // 4}
    assert len({rows for _, rows in watched}) > 2 or slots == 8, "then a slot restarts soon"
    with torch.no_grad():
        log_probs, _ = policy.evaluate_actions(rollout)
    assert_close(log_probs[rollout.mask], rollout.log_probs[rollout.mask], EXACT, "acting and training")
