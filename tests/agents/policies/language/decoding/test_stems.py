"""Decode steps read a beginning shared by several rows once; log-probabilities stay those of training."""

import pytest
import torch
from identity_checks import EXACT, assert_close, collect
from tiny_models import text_envs, tiny_policy

from agents.policies.language.decoding import decoder as decoding
from agents.policies.language.decoding.decoder import ContextDecoder
from agents.policies.language.decoding.kv_cache import SlotCache
from agents.policies.language.decoding.prefix_attention import Stems
from agents.policies.language.decoding.step import _attention

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


def test_stems_change_no_token(watched, monkeypatch):
    envs = text_envs(8, group_size=4, problems=PROMPTS)
    policy = tiny_policy("llama", envs)
    with_stems = collect(policy, envs)
    used = len(watched)
    monkeypatch.setattr(decoding, "WORTH_IT", 10_000)
    without = collect(policy, envs)
    assert used and len(watched) == used
    assert torch.equal(with_stems.actions[with_stems.mask], without.actions[without.mask])


def test_stems_end_when_a_slot_restarts_and_are_not_made_of_one_slot_per_prompt(watched):
    envs = text_envs(8, group_size=4, problems=PROMPTS)
    policy = tiny_policy("llama", envs)
    decoder = policy.initial_state(8)
    assert isinstance(decoder, ContextDecoder)
    tokens, lengths = torch.tensor([[1, 2, 3], [1, 2, 4]]).repeat_interleave(4, 0), torch.full((8,), 3)
    starts = torch.ones(8, dtype=torch.bool)
    decoder.logits(tokens, lengths, starts, None)
    assert decoder.stems is not None and (decoder.stems.num_groups, decoder.stems.width) == (2, 2)
    longer = torch.cat([tokens, torch.arange(8)[:, None] % 4], 1)
    decoder.logits(longer, lengths + 1, torch.arange(8) == 5, None)
    assert decoder.stems is None and all(layer.stem is None for layer in decoder.cache.layers)
    decoder.logits(torch.arange(24).view(8, 3) % 9, lengths, starts, None)
    assert decoder.stems is None


@pytest.mark.parametrize("ragged", [False, True])
def test_attention_with_stems_is_attention(ragged):
    generator = torch.Generator().manual_seed(0)
    cache, groups, width = SlotCache(1, 9, 12), torch.tensor([2, 0, 2, 2, 1, 0, 2]), 5
    draw = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    memory = cache.layers[0]
    memory.lazy_initialization(draw(1, 2, 1, 8), draw(1, 2, 1, 8))
    memory.keys.copy_(draw(9, 2, 12, 8)), memory.values.copy_(draw(9, 2, 12, 8))
    stems = Stems(cache, 3, width)
    stems.arrange(groups)
    for buffer in (memory.keys, memory.values):
        buffer[:7, :, :width] = buffer[groups, :, :width].clone()
    q, keys, values = draw(7, 2, 3, 8), memory.keys[:7, :, :11], memory.values[:7, :, :11]
    visible = (torch.arange(11) <= torch.tensor([5, 10, 4, 6, 7, 8, 9])[:, None])[:, None, None]
    mask = draw(7, 1, 1, 11).zero_().masked_fill_(~visible, -torch.inf) if ragged else None
    with_stems = stems.of_layer(0).attention(q, keys, values, mask, 0.3)
    assert_close(with_stems, _attention(q, keys, values, mask, 0.3), EXACT, "attention")
    memory.keys[:7, :, :width] = torch.nan  # rows do not hold what is read
    assert torch.equal(stems.of_layer(0).attention(q, keys, values, mask, 0.3), with_stems)
