"""Reward models: the trunk of a language model under a head with one output, with all weights or an adapter trained.

The folder of one with an adapter has peft's format, with the head, which is trained whole, and the configuration.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification
from transformers.utils import logging

from rlenv._checks import first_line, quiet
from rlenv._json import read_table

from ..policies.base import seeded_weights
from ..policies.presets import PRESETS
from .adapters import Adapter, adapt, adapted_layers, library
from .loading import ADAPTER_CONFIG, base_of, check_precision, has_adapter, model_folder
from .sizes import preset_config


def make_reward_model(
    spec: str | Path,
    vocab_size: int,
    max_length: int,
    pad: int | None,
    seed: int = 0,
    lora_rank: int | None = None,
    lora_alpha: float | None = None,
    lora_targets: str | None = None,
) -> Any:
    """Return a model with one output per text: new, or with the trunk of a language model, or one that was saved.

    Args:
        spec: a preset, folder, GGUF file or id, of a language model or a reward model.
        vocab_size: V, of the tokenizer.
        max_length: the longest text, for a preset.
        pad: the token that fills rows; None for the model's own.
        seed: of the new weights.
        lora_rank: of a new LoRA adapter; then only the adapter and the head are trained. None for all weights, or for
            the adapter that the reward model has.
        lora_alpha: see `adapters.adapt`.
        lora_targets: see `adapters.adapt`.

    Raises:
        ValueError: if there is no such model, it cannot rate texts, its files lack weights of the trunk, or the adapter
            cannot be made.
    """
    trained = Path(spec) if has_adapter(spec) else None
    if trained is not None and read_table(trained / ADAPTER_CONFIG).get("task_type") != "SEQ_CLS":
        raise ValueError(
            f"{str(spec)!r} holds the adapter of a language model; merge it before: rlenv export RUN FOLDER, then "
            "--model FOLDER"
        )
    if trained is not None or lora_rank is not None:
        library()
    base, name = base_of(model_folder(spec))
    with seeded_weights(seed):
        if str(spec) in PRESETS:
            config = preset_config(str(spec), vocab_size, max_length)
            config.num_labels = 1
            model = AutoModelForSequenceClassification.from_config(config)
        else:
            model = _read_model(base, trained)
        if model.config.vocab_size < vocab_size:
            sizes = f"{vocab_size}) does not fit the model's ({model.config.vocab_size}"
            raise ValueError(f"the tokenizer's vocabulary ({sizes})")
        adapt(model, name, trained, lora_rank, lora_alpha, lora_targets, _head(model))
    model.config.pad_token_id = model.config.pad_token_id if pad is None else pad
    return model.eval()


def save_reward_model(model: Any, folder: Path) -> None:
    """Write a reward model; of one with an adapter, not its base, if that has a name."""
    if not adapted_layers(model):
        model.save_pretrained(folder)
        return
    Adapter(model, _head(model)).save(folder, with_base=True)
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)


def _read_model(spec: str | Path, trained: Path | None) -> Any:
    """Return the model in a folder, with a new head if it has none.

    Args:
        spec: the folder or id.
        trained: the folder of an adapter on it, with the reward model's configuration; None for the model's own.
    """
    options: dict[str, Any] = {"output_loading_info": True, "trust_remote_code": False, "dtype": torch.float32}
    try:
        config = AutoConfig.from_pretrained(str(trained or spec), num_labels=1, trust_remote_code=False)
        check_precision(config)
        with quiet(logging):  # it would report the new head as missing
            model, report = AutoModelForSequenceClassification.from_pretrained(str(spec), config=config, **options)
    except (OSError, ValueError) as error:
        raise ValueError(f"model {str(spec)!r} cannot be made a reward model: {first_line(error)}") from error
    if lacking := sorted(name for name in report["missing_keys"] if name.startswith(f"{model.base_model_prefix}.")):
        raise ValueError(f"the weights of model {str(spec)!r} are incomplete: {', '.join(lacking[:3])}")
    return model


def _head(model: Any) -> tuple[str, ...]:
    """Return the names of the parts beside the trunk that have weights."""
    parts = model.named_children()
    return tuple(
        name for name, part in parts if name != model.base_model_prefix and any(True for _ in part.parameters())
    )
