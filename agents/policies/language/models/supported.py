"""Which models can be policies; the others are refused by the name of their type.

Here a model's configuration and class are checked, before its weights are read. `trial` compares its log-probabilities.
"""

from __future__ import annotations

import inspect
from typing import Any

from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PretrainedConfig, PreTrainedModel

SUPPORTED = "decoders with a KV cache such as llama, mistral, mixtral, qwen2, qwen3, gemma2, phi3 and gpt2"
ATTENTION = ("sdpa", "eager")  # implementations that accept any mask

RECURRENT = {"conv", "linear_attention", "hybrid", "hybrid_sliding"}  # transformers' names of kinds of layers


def model_type(model: PreTrainedModel) -> str:
    """Return transformers' name of the model type, such as "qwen3"."""
    return str(model.config.get_text_config().model_type)


def check_config(config: PretrainedConfig) -> None:
    """Refuse a model by its configuration.

    Raises:
        ValueError: if it is not a decoder with a KV cache that takes positions.
    """
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    if model_class is None:
        raise _unsupported(config, "is not a causal language model of transformers")
    check_class(model_class, config)


def check_class(model_class: type[PreTrainedModel], config: PretrainedConfig) -> None:
    """Refuse a class of models; see `check_config`."""
    if config.is_encoder_decoder:
        raise _unsupported(config, "is an encoder-decoder")
    kinds = getattr(config.get_text_config(), "layer_types", None) or ()
    if getattr(model_class, "_is_stateful", False) or RECURRENT.intersection(kinds):
        raise _unsupported(config, "keeps a recurrent state")
    arguments = inspect.signature(model_class.forward).parameters
    if "past_key_values" not in arguments:
        raise _unsupported(config, "has no KV cache")
    if "position_ids" not in arguments or getattr(config.get_text_config(), "alibi", False):
        raise _unsupported(config, "takes no positions (position_ids)")


def check_model(model: PreTrainedModel, vocab_size: int, max_length: int) -> None:
    """Check a model against the environment's vocabulary V and longest context L.

    Raises:
        ValueError: if it is not supported, or too small.
    """
    config = model.config.get_text_config()
    if config.vocab_size < vocab_size:
        raise ValueError(
            f"the tokenizer's vocabulary ({vocab_size}) does not fit the model's ({config.vocab_size}); use the "
            "model's own tokenizer, or resize the model's embedding"
        )
    check_class(type(model), model.config)
    if config._attn_implementation not in ATTENTION:
        raise ValueError(
            f"unknown attention {config._attn_implementation!r} of model type {model_type(model)!r}; "
            f"allowed: {', '.join(ATTENTION)}"
        )
    context, shorter = getattr(config, "max_position_embeddings", None), "lower max_prompt_tokens or max_new_tokens"
    if context is not None and context < max_length:
        raise ValueError(
            f"prompt and completion may be {max_length} tokens long, but the model's context ends at {context}; "
            f"{shorter}, or use another model"
        )
    for limit, why in context_limits(config):
        if limit < max_length:
            raise ValueError(
                f"prompt and completion may be {max_length} tokens long, but acting and training agree for model type "
                f"{model_type(model)!r} only within {limit} tokens, because of its {why}; to shorten them, {shorter}"
            )


def context_limits(config: PretrainedConfig) -> list[tuple[int, str]]:
    """Return the context lengths beyond which a model reads earlier tokens differently, with the reason."""
    rope: Any = getattr(config, "rope_parameters", None) or {}
    ropes = [rope] if "rope_type" in rope else [part for part in rope.values() if isinstance(part, dict)]
    limits = [
        (part["original_max_position_embeddings"], "longrope positions")
        for part in ropes
        if part.get("rope_type") == "longrope"
    ]
    if "local" in (getattr(config, "attention_layers", None) or ()):
        limits.append((config.window_size, "local attention"))
    if "chunked_attention" in (getattr(config, "layer_types", None) or ()):
        limits.append((config.attention_chunk_size, "chunked attention"))
    return limits


def _unsupported(config: PretrainedConfig, why: str) -> ValueError:
    return ValueError(f"model type {config.model_type!r} {why}; supported: {SUPPORTED}")
