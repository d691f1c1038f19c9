"""Loads language models of transformers, and refuses models that cannot be policies or do not fit the environment.

A configuration and a class are checked before the weights are read. `self_check` compares log-probabilities.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
)

from rlenv._checks import check_choice, first_line
from rlenv._json import read_table

from ..errors import UnknownModelError
from ..policies.presets import PACKAGED, PRESETS
from .kv_cache import cache_argument
from .sizes import preset_config

SUPPORTED = "decoders with a KV cache such as llama, mistral, mixtral, qwen2, qwen3, gemma2, phi3 and gpt2"
ATTENTION = ("sdpa", "eager")  # implementations that accept any mask
ADAPTER_CONFIG = "adapter_config.json"  # of peft, in the folder of an adapter
ADAPTER_BASE = "base"  # there: its base model, if that has no name
RECURRENT = {"conv", "linear_attention", "hybrid", "hybrid_sliding"}  # transformers' names of kinds of layers
DTYPES = ("float32", "float64", "bfloat16", "float16")
DEQUANTIZED = ("fp8", "mxfp4")  # kinds of quantized weights that transformers can read in full precision


def model_folder(spec: Any) -> Any:
    """Return the folder of a model that is a GGUF file or the name of a packaged one; anything else as it is.

    Raises:
        ValueError: see `gguf.folder_of`.
    """
    if not is_gguf(spec) and not (isinstance(spec, str) and spec in PACKAGED):
        return spec
    from .gguf import folder_of  # for such models alone

    return folder_of(spec)


def is_gguf(spec: Any) -> bool:
    """Whether `spec` names a GGUF file, there or not."""
    return isinstance(spec, (str, Path)) and Path(spec).suffix.lower() == ".gguf" and not Path(spec).is_dir()


def has_adapter(spec: Any) -> bool:
    """Whether `spec` is a folder with an adapter in peft's format."""
    return isinstance(spec, (str, Path)) and Path(spec, ADAPTER_CONFIG).is_file()


def base_of(spec: Any) -> tuple[Any, str | None]:
    """Return the base model of an adapter's folder, or any other model itself; and its name, None if it has none.

    Raises:
        ValueError: if the base is gone, or its name cannot be read.
    """
    if not has_adapter(spec):
        return spec, name_of(spec)
    folder = Path(spec)
    inside = folder / ADAPTER_BASE
    if inside.is_dir():
        return inside, None
    name = read_table(folder / ADAPTER_CONFIG).get("base_model_name_or_path")
    if not isinstance(name, str) or not name:
        raise ValueError(f"{str(folder / ADAPTER_CONFIG)!r} names no base model (base_model_name_or_path)")
    if Path(name).is_absolute() and not Path(name).exists():
        raise ValueError(
            f"the base model {name!r} of the adapter in {str(folder)!r} is gone; put it back, or a link to it"
        )
    return name, name


def find_config(spec: str | Path) -> PretrainedConfig:
    """Return the configuration of a model folder, model id, GGUF file or packaged model.

    Raises:
        ValueError: if the model does not exist, or models of this type are not supported.
    """
    if str(spec) in PRESETS:
        raise ValueError(f"{str(spec)!r} is a preset, whose weights are random: train it, and name the run folder")
    spec = model_folder(base_of(spec)[0])
    entries, _ = _reading(spec, PretrainedConfig.get_config_dict)
    if "auto_map" in entries and entries.get("model_type") not in CONFIG_MAPPING:
        raise ValueError(
            f"model {str(spec)!r} of type {entries.get('model_type')!r} needs its own code (auto_map in config.json); "
            f"rlenv never runs code of a checkpoint. Supported: {SUPPORTED}"
        )
    config: PretrainedConfig = _reading(spec, AutoConfig.from_pretrained, trust_remote_code=False)
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    if model_class is None:
        raise _unsupported(config, "is not a causal language model of transformers")
    check_class(model_class, config)
    check_precision(config, DEQUANTIZED)
    return config


def config_of(spec: str | Path, vocab_size: int, max_length: int) -> PretrainedConfig:
    """Return the configuration of the model that `spec` stands for: a preset ("auto" is "tiny"), folder or id."""
    name = "tiny" if str(spec) == "auto" else str(spec)
    return preset_config(name, vocab_size, max_length) if name in PRESETS else find_config(spec)


def _reading(spec: str | Path, reader: Callable[..., Any], **options: Any) -> Any:
    """Return `reader(spec)`; a failure becomes a ValueError of one line."""
    try:
        return reader(str(spec), **options)
    except StrictDataclassError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"config.json of model {str(spec)!r} is not valid: {reason}; mend it") from error
    except (OSError, ValueError) as error:
        raise UnknownModelError(
            f"unknown model {str(spec)!r}; allowed: {', '.join([*PRESETS, *PACKAGED])}, a folder, a GGUF file "
            f"or a model id ({first_line(error)})"
        ) from error


def _read_model(spec: str | Path, **options: Any) -> PreTrainedModel:
    """Return a model with all its weights; its files may lack only weights that are tied to others.

    Raises:
        ValueError: if the model does not exist or is not supported, or its files are damaged or do not hold exactly its
            tensors.
    """
    config = find_config(spec)  # before the weights are read
    if quantized := quantized_as(config):
        config.quantization_config["dequantize"] = True
        options["config"] = config
    options |= {"output_loading_info": True, "ignore_mismatched_sizes": True, "trust_remote_code": False}
    try:
        model, found = AutoModelForCausalLM.from_pretrained(str(spec), **options)
    except (UnpicklingError, EOFError) as error:
        raise ValueError(
            f"the weights of model {str(spec)!r} are a pickle that is damaged or holds more than tensors, which is "
            "never executed; convert them to safetensors"
        ) from error
    except (OSError, ValueError, ImportError, SafetensorError) as error:
        raise ValueError(
            f"the weights of model {str(spec)!r} cannot be read: {first_line(error)}; a model folder holds config.json "
            "and the whole weights, as `save_pretrained` writes them"
        ) from error
    sizes = [name for name, *_ in found["mismatched_keys"]]
    wrong = {"missing": found["missing_keys"], "unexpected": found["unexpected_keys"], "of another size": sizes}
    parts = [f"{len(names)} {kind} ({', '.join(sorted(names)[:3])})" for kind, names in wrong.items() if names]
    if parts:
        raise ValueError(f"the weights of model {str(spec)!r} do not fit {type(model).__name__}: {', '.join(parts)}")
    if quantized:
        model._weight_conversions = None  # those of the quantized file: `save_pretrained` would write its scales again
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
        spec: a preset, packaged model, folder, GGUF file, id or object.
        vocab_size: V.
        max_length: L.
        dtype: of the weights; None means float32 whatever the files have, and leaves an object as it is.
        attention: "sdpa" or "eager"; None means transformers' choice, and leaves an object as it is.

    Raises:
        ValueError: if the model does not exist or is not supported, its weights are incomplete, or it is too small for
            the environment.
    """
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; allowed: {', '.join(DTYPES)}")
    how = {} if attention is None else {"attn_implementation": check_choice("attention", attention, ATTENTION)}
    if isinstance(spec, PreTrainedModel):
        model = spec
        if attention is not None:
            model.set_attn_implementation(attention)
    elif str(spec) in PRESETS:
        model = AutoModelForCausalLM.from_config(preset_config(str(spec), vocab_size, max_length), **how)
    else:
        model = _read_model(model_folder(spec), dtype=getattr(torch, dtype or "float32"), **how)
    if dtype is not None:
        _convert(model, getattr(torch, dtype))
    if model.dtype is torch.float64:
        model.set_experts_implementation("eager")  # transformers' fused kernel for experts has no double precision
    check_model(model, vocab_size, max_length)
    return model.eval()


def name_of(spec: Any) -> str | None:
    """Return the name by which a checkpoint can refer to a model; None for a preset or an object."""
    if not isinstance(spec, (str, Path)) or str(spec) in PRESETS:
        return None
    return str(Path(spec).resolve()) if Path(spec).is_dir() or is_gguf(spec) else str(spec)


def _convert(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Convert the weights; buffers computed from the configuration (rotary frequencies) keep their precision."""
    saved = model.state_dict()
    computed = {name: buffer for name, buffer in model.named_buffers() if name not in saved}
    model.to(dtype)
    for name, buffer in computed.items():
        module, _, last = name.rpartition(".")
        setattr(model.get_submodule(module), last, buffer)


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


# Which models can be policies; the others are refused by the name of their type.


def model_type(model: PreTrainedModel) -> str:
    """Return transformers' name of the model type, such as "qwen3"."""
    return str(model.config.get_text_config().model_type)


def quantized_as(config: PretrainedConfig) -> str | None:
    """Return the kind of quantized weights that a configuration declares, such as "gptq"; None if it declares none."""
    declared = config.to_dict().get("quantization_config")
    kind = (declared or {}).get("quant_method")
    return str(getattr(kind, "value", kind)) if declared else None


def check_precision(config: PretrainedConfig, allowed: Sequence[str] = ()) -> None:
    """Refuse quantized weights.

    Args:
        config: of the model.
        allowed: kinds that are not refused.

    Raises:
        ValueError: naming the kind.
    """
    if (kind := quantized_as(config)) and kind not in allowed:
        raise ValueError(
            f"the weights of this {config.model_type!r} model are quantized ({kind}), so they cannot be trained; use "
            "the model that they were made from"
        )


def check_class(model_class: type[PreTrainedModel], config: PretrainedConfig) -> None:
    """Refuse models of a class that are not decoders with a KV cache that take positions, by a ValueError."""
    if config.is_encoder_decoder:
        raise _unsupported(config, "is an encoder-decoder")
    kinds = getattr(config.get_text_config(), "layer_types", None) or ()
    if getattr(model_class, "_is_stateful", False) or RECURRENT.intersection(kinds):
        raise _unsupported(config, "keeps a recurrent state")
    if cache_argument(model_class.forward) is None:
        raise _unsupported(config, "has no KV cache")
    arguments = inspect.signature(model_class.forward).parameters
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
    check_precision(model.config)
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
    if config.model_type == "moshi":  # whose plain pass reads beyond it
        limits.append((config.sliding_window, "sliding window"))
    return limits


def _unsupported(config: PretrainedConfig, why: str) -> ValueError:
    return ValueError(f"model type {config.model_type!r} {why}; supported: {SUPPORTED}")
