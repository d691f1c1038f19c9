"""Small models of many architectures: acting, training, restarting, saving and generating agree, or a refusal."""

import re

import gymnasium as gym
import pytest
import torch
from architectures import (
    ARCHITECTURES,
    CAPS,
    GEMMA,
    TEXT,
    TOLERANCE,
    Architecture,
    InDouble,
    generated,
    greedy_episodes,
    policy_of,
    small_envs,
)
from diagonal import slow
from dialogues import Echoing
from identity_checks import assert_close, check_law
from tiny_models import text_envs
from transformers import AutoModelForCausalLM

from rlenv.agents import LanguageModelPolicy, Reinforce

NAMES = {each.name: each for each in ARCHITECTURES}
SUPPORTED = [each.name for each in ARCHITECTURES if each.refused is None]
ALIKE = ("Jamba", "Falcon-H1", "Qwen3-Next")  # hybrids, refused for what Mamba and LFM2 are refused for
FAST = "Gemma 3 (text)"
supported = pytest.mark.parametrize("name", [name if name == FAST else slow(name) for name in SUPPORTED])


@supported
def test_a_supported_architecture_obeys_the_law_generates_trains_and_is_saved(name, tmp_path):
    envs = small_envs()
    with InDouble(), torch.no_grad():
        policy = policy_of(NAMES[name].model(), envs)
        rollout = check_law(policy, envs, TOLERANCE)
        for prompt, written in greedy_episodes(policy, envs).items():
            assert written == generated(policy.model, prompt, envs.task.encoding)
        policy.save(tmp_path)
        loaded = LanguageModelPolicy.load(tmp_path, envs.single_observation_space, envs.single_action_space)
        theirs = policy_of(AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype="float64"), envs)
        ours, again, other = (each.evaluate(rollout)["log_probs"] for each in (policy, loaded, theirs))
        assert torch.equal(ours, again)
        assert_close(ours, other, TOLERANCE, "ours and the model that transformers loads")
    with InDouble():
        agent = Reinforce(policy, envs, learning_rate=0.003, episodes_per_update=24, device="cpu")
        weights = {key: weight for key, weight in policy.named_parameters() if not re.search("vision|projector", key)}
        before = {key: weight.detach().clone() for key, weight in weights.items()}
        agent.update(rollout)
        changed = sum(not torch.equal(weight, before[key]) for key, weight in weights.items())
        assert changed > 0.8 * len(before), f"{changed} of {len(before)} tensors changed"
        check_law(policy, envs, TOLERANCE)


@supported
def test_a_supported_architecture_reads_replies_of_unequal_length_into_its_cache(name):
    settings = {"max_new_tokens": 3, "max_turns": 4, "group_size": 2}
    envs = gym.make_vec("TextGen-v0", 6, verifier=Echoing(alone=True), **settings)
    vocabulary = {"vocab_size": int(envs.single_action_space.n)}
    sizes = {"text_config": TEXT | vocabulary} if "text_config" in NAMES[name].sizes else vocabulary
    with InDouble():
        check_law(policy_of(NAMES[name].model(**sizes), envs), envs, TOLERANCE)


ROPE = {"rope_theta": 10_000.0, "factor": 2.0}
YARN = {"rope_type": "yarn", "original_max_position_embeddings": 8, **ROPE}
UNUSUAL = {
    "biases": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu"}),
    "yarn": ("LlamaConfig", {"rope_parameters": YARN}),
    "dynamic": ("LlamaConfig", {"rope_parameters": {"rope_type": "dynamic", **ROPE}}),  # by the length
    "mixed": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    "eager": ("MistralConfig", {"sliding_window": 4, "attn_implementation": "eager"}),
    "capped": ("Gemma2Config", {**GEMMA, **CAPS, "pad_token_id": 0}),
    "scaled": ("GraniteConfig", {"logits_scaling": 3.0}),
}


@pytest.mark.parametrize("kind", [kind if kind == "mixed" else slow(kind) for kind in UNUSUAL])
def test_a_model_of_unusual_settings_acts_as_it_is_trained(kind):
    """Embeddings of a padding token are zero: nothing can be learned about a head that caps from them."""
    envs, (config, sizes) = small_envs(), UNUSUAL[kind]
    with InDouble():
        check_law(policy_of(Architecture(kind, config, "", sizes).model(), envs), envs, TOLERANCE)


@pytest.mark.parametrize("name", [slow(name) if name in ALIKE else name for name in NAMES if name not in SUPPORTED])
def test_another_architecture_is_refused_by_the_name_of_its_type(name, tmp_path):
    refused = NAMES[name]
    model = refused.model()
    message = rf"^model type '{model.config.model_type}' {refused.refused}.*; supported: .*llama"
    with pytest.raises(ValueError, match=message):
        policy_of(model, text_envs(2))
    model.config.save_pretrained(tmp_path)  # no weights: it is refused before they are read
    with pytest.raises(ValueError, match=message):
        policy_of(tmp_path, text_envs(2))
