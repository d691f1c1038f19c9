"""Tiny random language models and text environments, made on the spot: nothing is downloaded, nothing is left random.

The weights are larger than any trained model's, so that the next token depends strongly on everything read before:
a policy that reads a wrong context, position or temperature gets clearly other log-probabilities.
"""

import copy
import zlib

import gymnasium as gym
import torch
from chat_families import chatml
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv.agents import LanguageModelPolicy
from rlenv.tokenizer import character_tokenizer
from rlenv.verifiers.function import FunctionVerifier

ALPHABET = "abcdefgh"
VOCABULARY = len(ALPHABET) + 2  # with padding and an end
PROMPTS = ["ab", "cdefgh", "a", "hgfedcba", "bbb", "dad", "acegbd", "fffff"]  # of unequal length, one token a letter
CONTEXT = 64
DROPOUT = 0.1
SPREAD = 0.3  # standard deviation of the weights
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
DROPS = dict.fromkeys(("attention_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop"), DROPOUT)
CONFIGS = {  # absolute positions; rotary with grouped queries; and with a sliding window
    "gpt2": (GPT2Config, {"num_key_value_heads": 4, "intermediate_size": 64}),
    "llama": (LlamaConfig, {}),
    "mistral": (MistralConfig, {"sliding_window": 4}),
}
MODELS = tuple(CONFIGS)


def tiny_model(name, vocab_size=VOCABULARY, seed=0, context=CONTEXT, layers=1, **sizes):
    """Return a random model of width 16 with dropout configured; one layer does what a test of anything else needs."""
    config, own = CONFIGS[name]
    given = {"vocab_size": vocab_size, "max_position_embeddings": context, "num_hidden_layers": layers}
    shape = SHAPE | DROPS | {"initializer_range": SPREAD} | own | given | sizes
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config(**shape)).eval()


def write_model(folder, name="llama", seed=0, layers=1):
    """Write a model with a tokenizer of its characters; return the folder."""
    tiny_model(name, seed=seed, layers=layers).save_pretrained(folder)
    character_tokenizer(ALPHABET).save_pretrained(folder)
    return folder


def write_chat_model(folder, context=CONTEXT):
    """Write a model of the Qwen kind, whose vocabulary is larger than its tokenizer's; return the tokenizer."""
    tokenizer = chatml()
    tiny_model("llama", len(tokenizer) + 4, context=context).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


def norm_in_double(model):
    """Let torch's RMSNorm stand in for transformers', the same function computed in float32 whatever the weights are.

    Rounding to float32 would make 1e-8 of what was 1e-16, and hide what the identities are about.
    """
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child).__name__.endswith("RMSNorm") and not isinstance(child, torch.nn.RMSNorm):
                norm = torch.nn.RMSNorm(child.weight.shape, child.variance_epsilon, dtype=torch.float64)
                setattr(parent, name, norm)


def tiny_policy(name, envs, temperature=1.0, dtype="float64", seed=0, layers=1, **kwargs):
    """Return a policy over the environment's vocabulary around a tiny model.

    Without further arguments, some of which draw weights, it is a copy: making one takes ten times as long, since it
    tries itself out.
    """
    spaces = (envs.single_observation_space, envs.single_action_space)
    known = (name, str(spaces), temperature, dtype, seed, layers)
    if kwargs or known not in _MADE:
        model = tiny_model(name, int(envs.single_action_space.n), seed, layers=layers)
        if dtype == "float64":
            norm_in_double(model)
        made = LanguageModelPolicy(*spaces, model, temperature=temperature, dtype=dtype, **kwargs)
        if kwargs:
            return made
        _MADE[known] = made
    return copy.deepcopy(_MADE[known])


_MADE = {}  # what is copied


def move_adapter(policy, seed=0):
    """Give an adapter, which starts with B = 0, an effect; return the policy."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            if "lora_B" in name:
                weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64) * 0.2)
    return policy


def reward_of(prompt, completion):
    """Return a reward that says which prompt and completion it is of, exact in single precision."""
    return (1 + zlib.crc32(f"{prompt}|{completion}".encode()) % 255) / 64


def hash_reward(prompts, completions):
    return [reward_of(*pair) for pair in zip(prompts, completions, strict=True)]


def won(prompts, completions, **columns):
    """Return 1 for about every second answer, of which a choice of prompts learns."""
    return [float(reward_of(*pair) > 2) for pair in zip(prompts, completions, strict=True)]


def text_envs(num_envs=4, reward=hash_reward, pad_is_eos=False, **kwargs):
    """Return TextGen-v0 over `PROMPTS`, whose completions are judged by a reward function."""
    if pad_is_eos:
        tokenizer = character_tokenizer(ALPHABET)
        tokenizer.pad_token = tokenizer.eos_token
        kwargs["tokenizer"] = tokenizer
    settings = {"problems": PROMPTS, "test_fraction": 0.0, "max_prompt_tokens": 8, "max_new_tokens": 12, **kwargs}
    return gym.make_vec("TextGen-v0", num_envs, verifier=FunctionVerifier(reward, alphabet=ALPHABET), **settings)
