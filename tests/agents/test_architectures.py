"""Small models of many architectures: acting, training, restarting, saving and generating agree, or a refusal."""

import gymnasium as gym
import pytest
import torch
from architectures import ARCHITECTURES, CHECKS, TEXT, TOLERANCE, InDouble, policy_of, small_envs
from dialogues import Echoing
from identity_checks import check_running_equals_fresh, collect
from tiny_models import text_envs

NAMES = {each.name: each for each in ARCHITECTURES}
SUPPORTED = [each.name for each in ARCHITECTURES if each.refused is None]
FAST = ("Gemma 3 (text)",)  # `tests/agents/test_identities.py` has others; experts are compared below
ALIKE = ("Jamba", "Falcon-H1", "Qwen3-Next")  # hybrids, refused for what Mamba and LFM2 are refused for


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in SUPPORTED]
)
def test_a_supported_architecture_passes_every_check(name):
    envs = small_envs()
    with InDouble():
        policy = policy_of(NAMES[name].model(), envs)
        for check in CHECKS.values():
            check(policy, envs)


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in SUPPORTED]
)
def test_a_supported_architecture_reads_replies_of_unequal_length_into_its_cache(name):
    settings = {"max_new_tokens": 3, "max_turns": 4, "group_size": 2}
    envs = gym.make_vec("TextGen-v0", 6, verifier=Echoing(alone=True), **settings)
    vocabulary = {"vocab_size": int(envs.single_action_space.n)}
    sizes = {"text_config": TEXT | vocabulary} if "text_config" in NAMES[name].sizes else vocabulary
    with InDouble():
        policy = policy_of(NAMES[name].model(**sizes), envs)
        check_running_equals_fresh(policy, envs, TOLERANCE, steps=20)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in ALIKE else name for name in NAMES if name not in SUPPORTED],
)
def test_another_architecture_is_refused_by_the_name_of_its_type(name, tmp_path):
    refused = NAMES[name]
    model = refused.model()
    message = rf"^model type '{model.config.model_type}' {refused.refused}.*; supported: .*llama"
    with pytest.raises(ValueError, match=message):
        policy_of(model, text_envs(2))
    model.config.save_pretrained(tmp_path)  # no weights: it is refused before they are read
    with pytest.raises(ValueError, match=message):
        policy_of(tmp_path, text_envs(2))


@torch.no_grad()
def test_acting_and_training_choose_the_same_experts():
    envs = text_envs(1)
    policy = policy_of(NAMES["Qwen3-MoE"].model(), envs)
    chosen = [[] for _ in policy.model.model.layers]
    for layer, seen in zip(policy.model.model.layers, chosen, strict=True):
        layer.mlp.gate.register_forward_hook(lambda *args, seen=seen: seen.append(args[2][-1]))  # indices [tokens, 2]
    with InDouble():
        rollout = collect(policy, envs, 1)
        acting = [torch.cat(seen) for seen in chosen]
        for seen in chosen:
            seen.clear()
        policy.evaluate(rollout)
    assert acting[0].shape == (int(policy.costs(rollout)[0]), 2), "every token but the last is read once"
    assert acting[0].unique().numel() > 2, "the experts must matter"
    for ours, theirs in zip(acting, chosen, strict=True):
        assert torch.equal(ours, torch.cat(theirs))
