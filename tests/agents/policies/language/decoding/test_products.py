"""Projections of the same input as one product, on weights that stay the parameters they are."""

import pytest
import torch
from identity_checks import EXACT, check_acting_equals_training, collect
from tiny_models import norm_in_double, text_envs, tiny_policy
from transformers import Qwen2Config, Qwen2ForCausalLM

from agents.policies import LanguageModelPolicy
from agents.policies.language.decoding import products
from agents.policies.language.decoding.products import Joined, joined


@pytest.fixture(autouse=True)
def on_this_device(monkeypatch):
    monkeypatch.setattr(products, "JOINED_ON", ("cpu",))


def biased_policy(envs):
    """Return a policy whose queries, keys and values have biases."""
    config = Qwen2Config(
        vocab_size=int(envs.single_action_space.n), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.5,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(config)
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.normal_(weight)
    norm_in_double(model)
    return LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, model, dtype="float64")


MAKE = {"llama": lambda envs: tiny_policy("llama", envs), "qwen2": biased_policy}


def learn(policy, rollout):
    """Take a large optimizer step."""
    optimizer = torch.optim.Adam(policy.actor_parameters(), lr=0.05)
    policy.evaluate_actions(rollout)[0].sum().backward()
    optimizer.step()


@pytest.mark.parametrize("name", ["qwen2", pytest.param("llama", marks=pytest.mark.slow)])
def test_acting_equals_training_before_and_after_an_optimizer_step(name):
    envs = text_envs(4, group_size=2)
    policy = MAKE[name](envs)
    step = policy._step
    assert all(isinstance(layer.qkv, Joined) and isinstance(layer.gate_up, Joined) for layer in step.layers)
    check_acting_equals_training(policy, envs, EXACT)
    before = collect(policy, envs, 8)
    learn(policy, before)
    check_acting_equals_training(policy, envs, EXACT)
    assert policy._step is step, "changes in place need no new step"
    assert not torch.equal(collect(policy, envs, 8).log_probs, before.log_probs)


def test_weights_are_read_and_written_as_before(tmp_path, monkeypatch):
    envs = text_envs(2)
    policy = biased_policy(envs)
    policy.save(tmp_path / "joined")
    monkeypatch.setattr(products, "JOINED_ON", ())
    plain = biased_policy(envs)
    plain.save(tmp_path / "plain")
    files = [path.relative_to(tmp_path / "joined") for path in (tmp_path / "joined").rglob("*") if path.is_file()]
    assert len(files) > 2
    for name in files:
        assert (tmp_path / "joined" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes(), name
    loaded = LanguageModelPolicy.load(tmp_path / "joined", envs.single_observation_space, envs.single_action_space)
    for ours, theirs in zip(loaded.parameters(), policy.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_new_storage_is_joined_again():
    envs = text_envs(4, group_size=2)
    policy = tiny_policy("llama", envs)
    weight = policy.model.base_model.layers[0].self_attn.k_proj.weight
    weight.data = 2 * weight.data.clone()
    step = policy._step
    check_acting_equals_training(policy, envs, EXACT)
    assert (
        policy._step is not step
        and policy._step.layers[0].qkv.weight.data_ptr() != step.layers[0].qkv.weight.data_ptr()
    )


def test_joining_within_inference_mode_leaves_weights_that_can_be_trained():
    weights = [torch.nn.Parameter(torch.randn(3, 4)) for _ in range(2)]
    with torch.inference_mode():
        made = joined(weights)
    (weights[0] @ torch.ones(4)).sum().backward()
    with torch.no_grad():
        weights[1].add_(1)
    assert torch.equal(made, torch.cat([weight.detach() for weight in weights])) and weights[0].grad is not None


def test_an_adapters_merged_weights_are_joined_too():
    envs = text_envs(4, group_size=2)
    policy = tiny_policy("llama", envs, lora_rank=2, lora_targets="q_proj,v_proj")
    assert isinstance(policy._step.layers[0].qkv, Joined)
    check_acting_equals_training(policy, envs, EXACT)
    learn(policy, collect(policy, envs, 8))
    check_acting_equals_training(policy, envs, EXACT)
