"""Tiny language models that vLLM runs, too."""

import torch
from tiny_models import CONTEXT
from transformers import AutoModelForCausalLM, LlamaConfig

import agents


def policy_for(envs, seed=0, temperature=0.7, shape=None, **kwargs):
    """Return a policy whose next token depends strongly on everything before; vLLM needs heads of 32 on a CPU.

    Args:
        envs: whose vocabulary it has.
        seed: of its weights.
        temperature: by which it acts.
        shape: of the model, where another one is wanted: settings of its configuration.
        kwargs: of the policy.
    """
    ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    usual = {
        "vocab_size": int(envs.single_action_space.n),
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.15,
    }
    config = LlamaConfig(**usual | ends | (shape or {}))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
    spaces = envs.single_observation_space, envs.single_action_space
    return agents.LanguageModelPolicy(*spaces, model, temperature=temperature, **kwargs)
