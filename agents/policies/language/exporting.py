"""Writes a language model for other programs, in transformers' own format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import GenerationConfig, PreTrainedModel


def write_model(model: PreTrainedModel, tokenizer: Any, vocab_size: int, folder: Path) -> None:
    """Write a model whose greedy generation with transformers is the policy's, token for token.

    generation_config.json names the end token that ends an episode, and nothing that would change greedy generation.
    Columns of a padded vocabulary beyond the tokenizer's, which the policy never samples, are suppressed.

    Args:
        model: the policy's.
        tokenizer: of the environment, written with its chat template, if any.
        vocab_size: V, without padding.
        folder: exists.

    Raises:
        ValueError: without a tokenizer.
    """
    if tokenizer is None:
        raise ValueError("a policy without a tokenizer cannot be exported: set policy.tokenizer first")
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    padding = list(range(vocab_size, model.config.get_text_config().vocab_size))
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=end,
        pad_token_id=end if pad is None else pad,
        suppress_tokens=padding or None,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
