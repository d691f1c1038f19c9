"""Loads language models of transformers and checks that they fit the environment."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, PretrainedConfig, PreTrainedModel

from ...checks import check_choice, first_line

PRESETS = ("tiny",)
ATTENTION = ("sdpa", "eager")  # implementations that accept any mask
DTYPES = ("float32", "float64", "bfloat16", "float16")


def is_text(observation_space: spaces.Space, action_space: spaces.Space) -> bool:
    """Whether these are the spaces of a text environment: Dict(tokens=Box, length=Discrete) and Discrete tokens."""
    return (
        isinstance(observation_space, spaces.Dict)
        and set(observation_space.spaces) == {"tokens", "length"}
        and isinstance(observation_space["tokens"], spaces.Box)
        and isinstance(action_space, spaces.Discrete)
        and action_space.start == 0
    )


def check_text_spaces(observation_space: Any, action_space: Any) -> tuple[int, int]:
    """Return the size of the vocabulary V and the longest context L of a text environment."""
    if not is_text(observation_space, action_space):
        raise ValueError(
            "a language model needs observations Dict(tokens=Box[L], length=Discrete) and actions Discrete(V), "
            f"got {observation_space} and {action_space}"
        )
    return int(action_space.n), int(observation_space["tokens"].shape[0])


def find_config(spec: str | Path) -> PretrainedConfig:
    """Return the configuration of a model folder or model id.

    Raises:
        ValueError: if the model does not exist.
    """
    return _read(AutoConfig, spec)


def _read(reader: Any, spec: str | Path, **options: Any) -> Any:
    try:
        return reader.from_pretrained(str(spec), trust_remote_code=False, **options)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"unknown model {str(spec)!r}; allowed: {', '.join(PRESETS)}, a folder or a model id ({first_line(error)})"
        ) from error


def _read_model(spec: str | Path, **options: Any) -> PreTrainedModel:
    """Return a model with all its weights; its files may lack only weights that are tied to others.

    Raises:
        ValueError: if the model does not exist, or its files are damaged or do not hold exactly its tensors.
    """
    more: dict[str, Any] = {"output_loading_info": True, "ignore_mismatched_sizes": True}
    try:
        model, found = _read(AutoModelForCausalLM, spec, **more, **options)
    except SafetensorError as error:
        raise ValueError(f"the weights of model {str(spec)!r} cannot be read: {error}") from error
    sizes = [name for name, *_ in found["mismatched_keys"]]
    wrong = {"missing": found["missing_keys"], "unexpected": found["unexpected_keys"], "of another size": sizes}
    parts = [f"{len(names)} {kind} ({', '.join(sorted(names)[:3])})" for kind, names in wrong.items() if names]
    if parts:
        raise ValueError(f"the weights of model {str(spec)!r} do not fit {type(model).__name__}: {', '.join(parts)}")
    for weight in model.parameters():
        weight.data = weight.data.clone()  # aligned as in a new model, unlike in the file: rounding depends on it
    return model


def load_model(
    spec: str | Path | PreTrainedModel,
    vocab_size: int,
    max_length: int,
    dtype: str | None,
    attention: str | None = None,
) -> Any:
    """Return the model that `spec` stands for, in evaluation mode, checked against vocabulary and context.

    Args:
        spec: a preset, folder, id or object.
        vocab_size: V.
        max_length: L.
        dtype: of the weights; None means float32 whatever the files have, and leaves an object as it is.
        attention: "sdpa" or "eager"; None means transformers' choice, and leaves an object as it is.

    Raises:
        ValueError: if the model does not exist, its weights are incomplete, or it is too small for the environment.
    """
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; allowed: {', '.join(DTYPES)}")
    how = {} if attention is None else {"attn_implementation": check_choice("attention", attention, ATTENTION)}
    if isinstance(spec, PreTrainedModel):
        model = spec
        if attention is not None:
            model.set_attn_implementation(attention)
    elif str(spec) in PRESETS:
        model = AutoModelForCausalLM.from_config(_tiny_config(vocab_size, max_length), **how)
    else:
        model = _read_model(spec, dtype=getattr(torch, dtype or "float32"), **how)
    if dtype is not None:
        model = model.to(getattr(torch, dtype))
    config = model.config.get_text_config()
    if config.vocab_size < vocab_size:
        raise ValueError(f"the tokenizer's vocabulary ({vocab_size}) does not fit the model's ({config.vocab_size})")
    _check_attention(model)
    context = getattr(config, "max_position_embeddings", None)
    if context is not None and context < max_length:
        raise ValueError(
            f"prompt and completion may be {max_length} tokens long, but the model's context ends at {context}"
        )
    for limit, why in _context_limits(config):
        if limit < max_length:
            raise ValueError(
                f"prompt and completion may be {max_length} tokens long, but acting and training agree for model type "
                f"{model_type(model)!r} only within {limit} tokens, because of its {why}; shorten them, or use "
                "another model"
            )
    return model.eval()


def model_type(model: PreTrainedModel) -> str:
    """Return transformers' name of the model type, such as "qwen3"."""
    return str(model.config.get_text_config().model_type)


def row_limit(model: PreTrainedModel) -> int | None:
    """Return the largest number of columns of a row that packs several contexts; None for any number."""
    config = model.config.get_text_config()
    if config.model_type != "gpt_neo":
        return None
    return min(
        [config.max_position_embeddings, *(limit for limit, _ in _context_limits(config))]
    )  # its mask counts columns


def _context_limits(config: PretrainedConfig) -> list[tuple[int, str]]:
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


def _check_attention(model: PreTrainedModel) -> None:
    name, config = model_type(model), model.config.get_text_config()
    if getattr(model, "_is_stateful", False):
        raise ValueError(f"model type {name!r} keeps a recurrent state; supported: models with a KV cache only")
    if "position_ids" not in inspect.signature(model.forward).parameters or getattr(config, "alibi", False):
        raise ValueError(f"model type {name!r} takes no positions; supported: models that take position_ids")
    if config._attn_implementation not in ATTENTION:
        allowed = ", ".join(ATTENTION)
        raise ValueError(
            f"unknown attention {config._attn_implementation!r} of model type {name!r}; allowed: {allowed}"
        )


@torch.no_grad()
def has_plain_head(model: PreTrainedModel) -> bool:
    """Whether logits are exactly the output embeddings applied to the trunk's output."""
    head = model.get_output_embeddings()
    if head is None:
        return False
    ids = torch.arange(min(8, model.config.get_text_config().vocab_size), device=model.device)[None]
    states = getattr(model.base_model(ids, use_cache=False), "last_hidden_state", None)
    if states is None or states.shape[-1] != getattr(head, "in_features", states.shape[-1]):
        return False
    return torch.equal(head(states), model(ids, use_cache=False).logits)


def _tiny_config(vocab_size: int, max_length: int) -> LlamaConfig:
    """Return two layers of width 128: about 0.4 million parameters with a small vocabulary."""
    return LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
