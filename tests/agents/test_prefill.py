"""Prompts read in parts, and masks that are added: the same as at once, and as boolean ones."""

import pytest
import torch
from diagonal import slow
from identity_checks import EXACT, assert_close, collect
from tiny_models import MODELS, text_envs, tiny_policy

from agents.language import attention
from agents.language import decoder as decoding

SLOTS = 9


def captured(policy):
    """Let a policy act through the captured step, which runs on a CPU as well."""
    policy.initial_state = lambda n: policy._captures.decoder(policy.model, policy._choose, n, policy.max_length)
    return policy


def reads_of(policy):
    """Return the shapes of all that is read into a cache from now on."""
    read = []

    def watched(module, args, kwargs):
        if kwargs.get("past_key_values") is not None:
            read.append((args[0] if args else kwargs["input_ids"]).shape)

    policy.model.base_model.register_forward_pre_hook(watched, with_kwargs=True)
    return read


@pytest.mark.parametrize("limit", [9, slow(1), slow(30)])
@pytest.mark.parametrize("kind", ["plain", "captured"])
def test_prompts_in_parts_are_read_as_at_once(kind, limit, monkeypatch):
    envs = text_envs(SLOTS, group_size=3)
    policy = tiny_policy("llama", envs)
    policy = captured(policy) if kind == "captured" else policy
    whole = collect(policy, envs, 18)

    monkeypatch.setattr(decoding, "PREFILL", limit)
    read = reads_of(policy)
    parts = collect(captured(policy) if kind == "captured" else policy, envs, 18)
    prompts = [shape for shape in read if shape[1] > 1]
    assert prompts and all(rows * length <= limit or rows == 1 for rows, length in prompts)
    assert torch.equal(parts.actions, whole.actions)
    assert_close(parts.log_probs, whole.log_probs, EXACT, "prompts in parts and at once")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("limit", [2**16, slow(16)])
def test_a_beginning_that_all_prompts_share_is_read_once(name, limit, monkeypatch):
    envs = text_envs(SLOTS, problems=["abcdea", "abcdeb", "abcdehg", "abcdecca"], group_size=3)
    policy = tiny_policy(name, envs)
    whole = collect(policy, envs, 18)

    monkeypatch.setattr(decoding, "SHARED", 1)
    monkeypatch.setattr(decoding, "PREFILL", limit)
    read = reads_of(policy)
    shared = collect(policy, envs, 18)
    assert read[0] == (1, 5) and 1 < read[1][1] <= 3
    assert torch.equal(shared.actions, whole.actions)
    assert_close(shared.log_probs, whole.log_probs, EXACT, "a common beginning read once and in each row")
    assert_close(policy.evaluate(shared)["log_probs"], shared.log_probs, EXACT, "training and acting")


@pytest.mark.parametrize("name", ["mistral", *map(slow, sorted(set(MODELS) - {"mistral"}))])
def test_masks_that_are_added_give_the_same(name, monkeypatch):
    envs = text_envs(4, group_size=2)
    policy = tiny_policy(name, envs)
    rollout = collect(policy, envs, 8)
    wanted = policy.evaluate(rollout)["log_probs"]
    monkeypatch.setattr(attention, "ADDED_ON", ("cpu",))
    seen = []
    made = attention.added_mask
    monkeypatch.setattr(attention, "added_mask", lambda *args: seen.append(made(*args)) or seen[-1])
    again = collect(policy, envs, 8)
    log_probs = policy.evaluate(again)["log_probs"]
    assert torch.equal(again.actions, rollout.actions)
    assert_close(log_probs, wanted, EXACT, "added and boolean masks")
    assert_close(again.log_probs, rollout.log_probs, EXACT, "added and boolean masks in acting")
    assert seen and all(mask.stride(-2) % attention.ALIGNMENT == 0 and mask.is_floating_point() for mask in seen)
