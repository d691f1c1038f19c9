"""Models that are taken, of many architectures; what would act otherwise than it is trained is refused in one line."""

import linecache
import re
from functools import partial

import architectures
import gymnasium as gym
import pytest
import torch
import transformers
from architectures import SHAPE, TOLERANCE, InDouble, policy_of, small_envs
from diagonal import slow
from dialogues import Echoing
from identity_checks import ROUNDING, assert_close, check_law, collect
from refused import refusal
from tiny_models import CONTEXT, SPREAD, text_envs, tiny_model
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention, apply_rotary_pos_emb

from rlenv.agents import LanguageModelPolicy, Reinforce
from rlenv.agents.language.kv_cache import CACHE
from rlenv.agents.language.loading import load_model
from rlenv.agents.training.supervised import warm_start

LENGTH = 20  # of the longest context in text_envs
FOUR = SHAPE | {"num_key_value_heads": 4, "initializer_range": SPREAD}
MASKED = {key: value for key, value in FOUR.items() if key != "num_key_value_heads"} | {"is_decoder": True}
PADDED = MASKED | {"pad_token_id": 1}
SHARED = {
    "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2,
    "vocab_size_per_layer_input": 10, "hidden_size_per_layer_input": 8, "laurel_rank": 4, "head_dim": 4,
    "altup_num_inputs": 2, "activation_sparsity_pattern": None,
}  # fmt: skip


def gpt_neo(window):
    sizes = {"vocab_size": 10, "hidden_size": 16, "num_layers": 2, "num_heads": 4, "initializer_range": SPREAD}
    kinds = {"attention_types": [[["global", "local"], 1]], "window_size": window, "max_position_embeddings": CONTEXT}
    return transformers.GPTNeoConfig(**sizes, **kinds, bos_token_id=None, eos_token_id=None)


def longrope(original):
    rope = {"rope_type": "longrope", "rope_theta": 10_000.0, "factor": 2.0}
    rope |= {"short_factor": [1.0, 1.0], "long_factor": [4.0, 8.0]}
    return transformers.Phi3Config(**FOUR, rope_parameters=rope, original_max_position_embeddings=original)


def chunked(chunk):
    kinds = {"layer_types": ["chunked_attention", "full_attention"], "attention_chunk_size": chunk}
    return transformers.Llama4TextConfig(**FOUR, **kinds, head_dim=4, intermediate_size_mlp=32, num_local_experts=2)


def moshi(window):
    return transformers.MoshiConfig(**FOUR, sliding_window=window, ffn_dim=64, head_dim=4)


def model_of(config):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config).eval()


EDGES = {"gpt_neo": gpt_neo, "phi3": longrope, "llama4_text": chunked, "moshi": moshi}  # the most tokens they take
REFUSED = {  # made by, why
    "roberta": (lambda: transformers.RobertaConfig(**PADDED), "differ"),
    "roberta ": (lambda: transformers.RobertaConfig(**MASKED), "fails"),
    "bert": (lambda: transformers.BertConfig(**MASKED | {"is_decoder": False}), "differ|fails"),
    "gemma3n_text": (lambda: transformers.Gemma3nTextConfig(**FOUR | SHARED), "fails"),
    **{name: (lambda make=make: make(LENGTH - 1), f"within {LENGTH - 1} tokens") for name, make in EDGES.items()},
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_act_otherwise_than_they_train_are_refused_in_one_line(name):
    make, why = REFUSED[name]
    line = refusal(lambda: Reinforce(model_of(make()), text_envs(2), device="cpu"), f"model type '{name.strip()}'")
    assert re.search(rf"({why}).*(supported|shorten)", line) and len(line) < 400, line


class OwnAttention(LlamaAttention):
    """Attention of a user's own, which obeys masks and does not ask the configuration how to attend."""

    def forward(self, hidden_states, position_embeddings, attention_mask=None, **more):
        parts = (
            part(hidden_states).unflatten(-1, (-1, self.head_dim)) for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k, v = (part.transpose(1, 2) for part in parts)
        q, k = apply_rotary_pos_emb(q, k, *position_embeddings)
        for cache in (more[name] for name in CACHE if more.get(name) is not None):  # its name depends on transformers
            k, v = cache.update(k, v, self.layer_idx)
        causal = attention_mask is None and q.shape[2] > 1
        made = scaled_dot_product_attention(q, k, v, attention_mask, is_causal=causal, enable_gqa=True)
        return self.o_proj(made.transpose(1, 2).flatten(2)), None


def test_attention_that_cannot_read_a_forest_is_refused_before_supervised_training_reads_one():
    model = tiny_model("llama")
    for layer in model.model.layers:
        layer.self_attn.__class__ = OwnAttention
    make = partial(Reinforce, model, text_envs(2), device="cpu")
    refusal(make, "'llama' cannot be used: its log-probabilities in a forest of contexts")


@pytest.mark.parametrize("name", [slow("bert"), slow("gpt_neo"), "phi3", slow("llama4_text"), slow("moshi")])
def test_models_at_the_edge_of_what_is_refused_act_as_they_are_trained(name):
    config = transformers.BertConfig(**MASKED) if name == "bert" else EDGES[name](LENGTH)
    envs = text_envs(8, group_size=8)
    check_law(policy_of(model_of(config), envs), envs, ROUNDING)


# Architectures: acting, training, restarting, saving and generating agree.


NAMES = {each.name: each for each in architectures.ARCHITECTURES}
SUPPORTED = [each.name for each in architectures.ARCHITECTURES if each.refused is None]
ALIKE = ("Jamba", "Falcon-H1", "Qwen3-Next")  # hybrids, refused for what Mamba and LFM2 are refused for
FAST = "Gemma 3 (text)"
supported = pytest.mark.parametrize("name", [name if name == FAST else slow(name) for name in SUPPORTED])


@supported
def test_a_supported_architecture_obeys_the_law_generates_trains_and_is_saved(name, tmp_path):
    envs = small_envs()
    with InDouble(), torch.no_grad():
        policy = policy_of(NAMES[name].model(), envs)
        rollout = check_law(policy, envs, TOLERANCE)
        for prompt, written in architectures.greedy_episodes(policy, envs).items():
            assert written == architectures.generated(policy.model, prompt, envs.task.encoding)
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
    sizes = {"text_config": architectures.TEXT | vocabulary} if "text_config" in NAMES[name].sizes else vocabulary
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
    "capped": ("Gemma2Config", {**architectures.GEMMA, **architectures.CAPS, "pad_token_id": 0}),
    "scaled": ("GraniteConfig", {"logits_scaling": 3.0}),
}


@pytest.mark.parametrize("kind", [kind if kind == "mixed" else slow(kind) for kind in UNUSUAL])
def test_a_model_of_unusual_settings_acts_as_it_is_trained(kind):
    """Embeddings of a padding token are zero: nothing can be learned about a head that caps from them."""
    envs, (config, sizes) = small_envs(), UNUSUAL[kind]
    with InDouble():
        check_law(policy_of(architectures.Architecture(kind, config, "", sizes).model(), envs), envs, TOLERANCE)


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


# Precision.


@pytest.fixture
def stored_in_half(tmp_path):
    """Return a folder with a model in bfloat16, as most of them are published."""
    tiny_model("llama").bfloat16().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def agent_of(model, dtype=None, **kwargs):
    envs = text_envs(8, group_size=4)
    settings = {"episodes_per_update": 8, "lr_schedule": "constant", "device": "cpu", **kwargs}
    return Reinforce(model, envs, policy_kwargs={} if dtype is None else {"dtype": dtype}, **settings)


def share_moved(agent):
    """Return the share of weights that one update changes."""
    before = [parameter.detach().clone() for parameter in agent.policy.parameters()]
    agent.update(collect(agent.policy, agent.env, 8))
    moved = [(now != old).flatten() for now, old in zip(agent.policy.parameters(), before, strict=True)]
    return torch.cat(moved).float().mean().item()


def test_a_model_stored_in_bfloat16_is_trained_in_float32_unless_bfloat16_is_asked_for(stored_in_half):
    agent = agent_of(stored_in_half, learning_rate=1e-6)
    assert {parameter.dtype for parameter in agent.policy.parameters()} == {torch.float32}
    assert share_moved(agent) > 0.5
    coarse = agent_of(stored_in_half, "bfloat16", learning_rate=1e-6)
    assert {parameter.dtype for parameter in coarse.policy.parameters()} == {torch.bfloat16}
    assert share_moved(coarse) < 0.1, "small steps are kept by the optimizer's copies, see test_optimizer.py"


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_weights_are_converted_and_rotary_frequencies_are_not(dtype, stored_in_half):
    """Frequencies rounded to bfloat16 would move position 200 by up to a radian."""
    theirs = AutoModelForCausalLM.from_pretrained(stored_in_half, dtype=dtype)
    an_object = tiny_model("llama")
    an_object.load_state_dict(theirs.state_dict())
    for spec in (stored_in_half, an_object):
        ours = load_model(spec, 10, LENGTH, dtype)
        assert {weight.dtype for weight in ours.parameters()} == {getattr(torch, dtype)}
        assert torch.equal(ours.model.rotary_emb.inv_freq, theirs.model.rotary_emb.inv_freq)
        ids = torch.arange(CONTEXT)[None] % 10
        assert torch.equal(ours(ids).logits, theirs(ids).logits)


def test_training_in_float16_warns_in_one_line_and_acting_does_not(stored_in_half):
    agent = agent_of(stored_in_half, "float16")
    rollout = collect(agent.policy, agent.env, 8)  # warnings are errors
    for train in (
        lambda: agent.learn(total_episodes=8),
        lambda: warm_start(agent.policy, lambda count: rollout, steps=1),
    ):
        with pytest.warns(UserWarning, match=r"training in float16.*dtype='bfloat16'") as caught:
            train()
        assert len(caught) == 1 and "\n" not in str(caught[0].message)
        line = linecache.getline(caught[0].filename, caught[0].lineno)
        assert "learn(" in line or "warm_start(" in line, "the warning is about the line that trains"


def test_one_unlikely_action_in_bfloat16_does_not_end_a_run_and_a_shift_of_all_does(stored_in_half):
    for shift, share in ((0.6, 0.01), (0.3, 1.0)):
        agent = agent_of(stored_in_half, "bfloat16")
        rollout = collect(agent.policy, agent.env, 32)
        rollout.log_probs[: max(int(32 * share), 1), : None if share == 1 else 1] += shift
        if share < 1:
            assert agent.update(rollout)["train/logp_gap_max"] > 0.5
        else:
            with pytest.raises(RuntimeError, match=r"differ by a KL of 0\.\d+ nats \(at most 0.02 is"):
                agent.update(rollout)


def test_a_saved_preset_fits_an_environment_with_longer_texts(tmp_path):
    """A warm start on short answers is no reason to refuse longer ones later."""
    envs = text_envs(4, group_size=4)
    Reinforce("tiny", envs, episodes_per_update=4, device="cpu").policy.save(tmp_path)
    longer = text_envs(4, group_size=4, max_new_tokens=200)
    assert Reinforce(tmp_path / "model", longer, episodes_per_update=4, device="cpu").policy.max_length == 208
    assert load_model("tiny", 10, 5000, None).config.max_position_embeddings == 5000
