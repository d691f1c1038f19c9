"""Small models of many architectures: test_models.py checks them, docs/appendix/models.md has all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import transformers
from tiny_models import SHAPE, SPREAD, text_envs
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, PreTrainedModel

from rlenv.agents import Collector, LanguageModelPolicy

TOLERANCE = 1e-10  # nats, in float64
ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
WINDOW = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
HEADS = {"head_dim": 4}
GEMMA = {**HEADS, **WINDOW, "query_pre_attn_scalar": 4}
TEXT = {**SHAPE, **GEMMA, "initializer_range": SPREAD}
SIGHT = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
IMAGES = {"vision_config": {**SIGHT, "image_size": 28, "patch_size": 14}}
CAPS = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
MIXTRAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
LATENT = {"kv_lora_rank": 8, "q_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}
ROUTED = {"moe_intermediate_size": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4, "linear_value_head_dim": 4}
CONVOLUTION = {"layer_types": ["conv", "full_attention"]}
MAMBA = {"mamba_d_ssm": 16, "mamba_n_heads": 4, "mamba_d_state": 4}


class Architecture(NamedTuple):
    """A kind of model: its configuration class in transformers, what differs from `SHAPE`, and why it is refused."""

    name: str
    config: str
    about: str
    sizes: dict[str, Any] = {}
    refused: str | None = None

    def model(self, **sizes: Any) -> PreTrainedModel:
        """Return a random model of about 5,000 parameters in double precision."""
        config = getattr(transformers, self.config)(**SHAPE | self.sizes | sizes)
        config.initializer_range = SPREAD
        auto = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return auto.from_config(config, dtype=torch.float64).eval()


ARCHITECTURES = [
    Architecture("GPT-2", "GPT2Config", "learned positions, tied head", {"num_key_value_heads": 4}),
    Architecture("OPT", "OPTConfig", "learned positions with an offset", {"ffn_dim": 32, "word_embed_proj_dim": 16}),
    Architecture("GPT-NeoX, Pythia", "GPTNeoXConfig", "rotary positions in a part of each head"),
    Architecture("Falcon", "FalconConfig", "one key head, parallel layers", {"multi_query": True, "alibi": False}),
    Architecture("Llama", "LlamaConfig", "grouped queries"),
    Architecture("Mistral", "MistralConfig", "grouped queries", {"sliding_window": None}),
    Architecture("Mistral, windowed", "MistralConfig", "sliding window", {"sliding_window": 4}),
    Architecture("Qwen2, Qwen2.5", "Qwen2Config", "biases of queries, keys and values"),
    Architecture("Qwen3", "Qwen3Config", "normed queries and keys", HEADS),
    Architecture("Gemma 2", "Gemma2Config", "soft-capping, sliding windows, tied head", GEMMA | CAPS),
    Architecture("Gemma 3 (text)", "Gemma3TextConfig", "two rotary bases, sliding windows", GEMMA),
    Architecture("Gemma 3 with images", "Gemma3Config", "its text part is trained", {"text_config": TEXT, **IMAGES}),
    Architecture("Phi-3, Phi-4", "Phi3Config", "fused projections"),
    Architecture("OLMo 2", "Olmo2Config", "norms after the layers"),
    Architecture("OLMo 3", "Olmo3Config", "norms after the layers, sliding windows", WINDOW),
    Architecture("Granite", "GraniteConfig", "scaled logits", {"logits_scaling": 2.0}),
    Architecture("Cohere 2", "Cohere2Config", "scaled logits, sliding windows", {**WINDOW, "logit_scale": 0.5}),
    Architecture("SmolLM3", "SmolLM3Config", "layers without positions", {"no_rope_layers": [1, 0]}),
    Architecture("Mixtral", "MixtralConfig", "mixture of experts", MIXTRAL),
    Architecture("Qwen3-MoE", "Qwen3MoeConfig", "mixture of experts", EXPERTS | HEADS),
    Architecture(
        "DeepSeek-V3", "DeepseekV3Config", "latent attention, mixture of experts",
        {**LATENT, **ROUTED, "first_k_dense_replace": 1, "num_key_value_heads": 4},
    ),
    Architecture(
        "gpt-oss", "GptOssConfig", "attention sinks, windows, mixture of experts",
        {**WINDOW, **HEADS, **MIXTRAL, "rope_parameters": ROPE},
    ),
    Architecture(
        "Jamba", "JambaConfig", "hybrid of attention and Mamba",
        {"num_experts": 2, "attn_layer_offset": 1, "attn_layer_period": 2}, "keeps a recurrent state",
    ),
    Architecture("Falcon-H1", "FalconH1Config", "hybrid of attention and Mamba", MAMBA, "keeps a recurrent state"),
    Architecture(
        "Qwen3-Next", "Qwen3NextConfig", "hybrid of attention and linear attention",
        {**EXPERTS, **HEADS, **LINEAR, "shared_expert_intermediate_size": 16}, "keeps a recurrent state",
    ),
    Architecture("Mamba", "MambaConfig", "state space", {"state_size": 4}, "keeps a recurrent state"),
    Architecture("LFM2", "Lfm2Config", "hybrid of attention and convolutions", CONVOLUTION, "keeps a recurrent state"),
    Architecture("T5", "T5Config", "encoder-decoder", {}, "is (an encoder-decoder|not a causal)"),
    Architecture("BLOOM", "BloomConfig", "ALiBi", {}, "takes no positions"),
    Architecture("GPT (2018)", "OpenAIGPTConfig", "learned positions", {"n_head": 4}, "has no KV cache"),
]  # fmt: skip


class InDouble(TorchFunctionMode):
    """Keep double precision where transformers computes in float32: in norms, softmaxes and routers.

    Rounding to float32 would make 1e-8 of what is 1e-16, and hide what the checks are about.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if args and isinstance(args[0], torch.Tensor) and args[0].dtype is torch.float64:
            if function is torch.Tensor.float:
                return args[0]
            args = tuple(torch.float64 if each is torch.float32 else each for each in args)
            kwargs = {name: torch.float64 if each is torch.float32 else each for name, each in kwargs.items()}
        return function(*args, **kwargs)


def small_envs() -> Any:
    """Return an environment whose episodes are short but longer than the models' windows."""
    return text_envs(8, group_size=4, max_new_tokens=7)


def policy_of(model: Any, envs: Any) -> LanguageModelPolicy:
    return LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, model)


def greedy_episodes(policy: LanguageModelPolicy, envs: Any, count: int = 32) -> dict[tuple[int, ...], list[int]]:
    """Return the completion of each prompt, among so many greedy episodes."""
    rollout = Collector(envs, torch.device("cpu")).collect(policy, count, deterministic=True)
    assert rollout is not None and isinstance(rollout.observations, dict)
    written: dict[tuple[int, ...], list[int]] = {}
    for row in range(count):
        prompt = rollout.observations["tokens"][row, : rollout.observations["length"][row]]
        completion = rollout.actions[row, : rollout.lengths[row]].tolist()
        assert written.setdefault(tuple(prompt.tolist()), completion) == completion, "greedy episodes do not differ"
    return written


@torch.no_grad()
def generated(model: PreTrainedModel, prompt: Sequence[int], encoding: Any) -> list[int]:
    """Return transformers' greedy completion with its end token, over the tokens of an environment."""
    beyond = list(range(encoding.vocab_size, model.config.get_text_config().vocab_size)) or None
    ids = torch.tensor([prompt])
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=encoding.max_new_tokens,
        suppress_tokens=beyond, eos_token_id=encoding.eos_token_id, pad_token_id=encoding.eos_token_id,
    )  # fmt: skip
    return made[0, len(prompt) :].tolist()
