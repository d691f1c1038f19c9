"""Models that are taken: what would act otherwise than it is trained is refused in one line; and the presets."""

import linecache

import pytest
import torch
from architectures import SHAPE, policy_of
from diagonal import slow
from identity_checks import ROUNDING, check_law, collect
from tiny_models import CONTEXT, SPREAD, text_envs, tiny_model
from torch.nn.functional import scaled_dot_product_attention
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    Gemma3nTextConfig,
    GPTNeoConfig,
    Llama4TextConfig,
    MoshiConfig,
    Phi3Config,
    RobertaConfig,
)
from transformers.models.llama.modeling_llama import LlamaAttention, apply_rotary_pos_emb

from rlenv.agents import Reinforce
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
    return GPTNeoConfig(**sizes, **kinds, bos_token_id=None, eos_token_id=None)


def longrope(original):
    rope = {"rope_type": "longrope", "rope_theta": 10_000.0, "factor": 2.0}
    rope |= {"short_factor": [1.0, 1.0], "long_factor": [4.0, 8.0]}
    return Phi3Config(**FOUR, rope_parameters=rope, original_max_position_embeddings=original)


def chunked(chunk):
    kinds = {"layer_types": ["chunked_attention", "full_attention"], "attention_chunk_size": chunk}
    return Llama4TextConfig(**FOUR, **kinds, head_dim=4, intermediate_size_mlp=32, num_local_experts=2)


def moshi(window):
    return MoshiConfig(**FOUR, sliding_window=window, ffn_dim=64, head_dim=4)


def model_of(config):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config).eval()


EDGES = {"gpt_neo": gpt_neo, "phi3": longrope, "llama4_text": chunked, "moshi": moshi}  # the most tokens they take
REFUSED = {  # made by, why
    "roberta": (lambda: RobertaConfig(**PADDED), "differ"),
    "roberta ": (lambda: RobertaConfig(**MASKED), "fails"),
    "bert": (lambda: BertConfig(**MASKED | {"is_decoder": False}), "differ|fails"),
    "gemma3n_text": (lambda: Gemma3nTextConfig(**FOUR | SHARED), "fails"),
    **{name: (lambda make=make: make(LENGTH - 1), f"within {LENGTH - 1} tokens") for name, make in EDGES.items()},
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_act_otherwise_than_they_train_are_refused_in_one_line(name):
    make, why = REFUSED[name]
    with pytest.raises(ValueError, match=rf"model type '{name.strip()}'.*({why}).*(supported|shorten)") as refusal:
        Reinforce(model_of(make()), text_envs(2), device="cpu")
    line = str(refusal.value)
    assert "\n" not in line and len(line) < 400, line


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
    with pytest.raises(ValueError, match="'llama' cannot be used: its log-probabilities in a forest of contexts"):
        Reinforce(model, text_envs(2), device="cpu")


@pytest.mark.parametrize("name", [slow("bert"), slow("gpt_neo"), "phi3", slow("llama4_text"), slow("moshi")])
def test_models_at_the_edge_of_what_is_refused_act_as_they_are_trained(name):
    config = BertConfig(**MASKED) if name == "bert" else EDGES[name](LENGTH)
    envs = text_envs(8, group_size=8)
    check_law(policy_of(model_of(config), envs), envs, ROUNDING)


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


# Presets: models made for an environment's spaces, of documented sizes.


def test_a_saved_preset_fits_an_environment_with_longer_texts(tmp_path):
    """A warm start on short answers is no reason to refuse longer ones later."""
    envs = text_envs(4, group_size=4)
    Reinforce("tiny", envs, episodes_per_update=4, device="cpu").policy.save(tmp_path)
    longer = text_envs(4, group_size=4, max_new_tokens=200)
    assert Reinforce(tmp_path / "model", longer, episodes_per_update=4, device="cpu").policy.max_length == 208
    assert load_model("tiny", 10, 5000, None).config.max_position_embeddings == 5000
