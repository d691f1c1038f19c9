"""What a GPU is asked to compute: which attention, masks, products and parts; see `conftest.py`."""

import pytest
import torch
from tiny_models import text_envs, tiny_model

from agents import Collector, LanguageModelPolicy
from agents.language import attention as masks
from agents.policies.base import actor_parameters


def policy_on(envs, kind="llama", dtype="float64", **settings):
    spaces = envs.single_observation_space, envs.single_action_space
    return LanguageModelPolicy(*spaces, tiny_model(kind), dtype=dtype, **settings).cuda()


def collected(policy, envs, episodes=8):
    collector = Collector(envs, torch.device("cuda"))
    collector.seed(0)
    return collector.collect(policy, episodes, torch.Generator("cuda").manual_seed(0))


@pytest.fixture
def attended(monkeypatch):
    """Whether cuDNN might have been taken, for every call of attention."""
    seen, attention = [], torch.nn.functional.scaled_dot_product_attention

    def watched(*args, **kwargs):
        seen.append(torch.backends.cuda.cudnn_sdp_enabled())
        return attention(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    return seen


@pytest.mark.parametrize(("kind", "graphs"), [("llama", True), pytest.param("gpt2", False, marks=pytest.mark.slow)])
def test_no_attention_is_computed_by_cudnn_and_others_keep_it(kind, graphs, attended):
    envs = text_envs(8, group_size=4, max_new_tokens=6, device="cuda")
    policy = policy_on(envs, kind, activation_checkpointing=True, cuda_graphs=graphs)
    attended.clear()
    rollout = collected(policy, envs)
    acted = len(attended)
    log_probs = policy.evaluate(rollout)["log_probs"]
    passed = len(attended)
    log_probs.sum().backward()
    assert 0 < acted < passed < len(attended), "prompts and steps, a training pass, and its layers again"
    assert not any(attended) and torch.backends.cuda.cudnn_sdp_enabled()


def test_masks_are_added_and_made_once_per_step(monkeypatch):
    envs, made, given, added = text_envs(4, device="cuda"), [], set(), masks.added_mask
    policy, attention = policy_on(envs), torch.nn.functional.scaled_dot_product_attention

    def watched(q, k, v, attn_mask=None, **rest):
        given.add(None if attn_mask is None else attn_mask.dtype)
        return attention(q, k, v, attn_mask=attn_mask, **rest)

    monkeypatch.setattr(masks, "added_mask", lambda *args: made.append(1) or added(*args))
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    policy.evaluate(collected(policy, envs, 4))
    assert made and torch.bool not in given and torch.float64 in given


def test_captured_steps_follow_the_optimizer():
    envs = text_envs(8, group_size=4, max_new_tokens=6, device="cuda")
    policy = policy_on(envs)
    rollout = collected(policy, envs)
    graphs = policy._captures.by_slots[8].runs.copy()
    policy.evaluate(rollout)["log_probs"].sum().backward()
    torch.optim.SGD(actor_parameters(policy), lr=0.1).step()
    after = collected(policy, envs)
    log_probs = policy.evaluate(after)["log_probs"].detach()
    assert (log_probs - after.log_probs).abs().max() < 1e-6
    assert policy._captures.by_slots[8].runs.items() >= graphs.items(), "what was captured is replayed"
    assert not torch.equal(after.log_probs.exp().sum(), rollout.log_probs.exp().sum())
