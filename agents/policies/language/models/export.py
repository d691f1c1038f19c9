"""What other programs need to generate as the policy acts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from ....core.files import read_table

_FILE = "generation_config.json"


def end_tokens(folder: Path, tokenizer: Any) -> list[int]:
    """Return the tokens that end an episode: those that a policy has saved beside its model, else the tokenizer's."""
    saved = read_table(folder / _FILE).get("eos_token_id") if (folder / _FILE).is_file() else None
    ends = tokenizer.eos_token_id if saved is None else saved
    return ends if isinstance(ends, list) else [ends]


def write_generation_config(folder: Path, tokenizer: Any, ends: list[int], vocab_size: int, width: int) -> None:
    """Write the file by which greedy generation with transformers is the policy's, token for token.

    It names the end tokens and suppresses the ids of a padded vocabulary that the tokenizer does not have, which the
    policy never chooses. It has no settings that would change greedy generation, such as penalties.

    Args:
        folder: of the model; the file may exist.
        tokenizer: of the environment.
        ends: tokens that end an episode, at least one.
        vocab_size: V, the tokenizer's.
        width: of the model's logits, at least V.
    """
    pad = tokenizer.pad_token_id
    config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=ends if len(ends) > 1 else ends[0],
        pad_token_id=ends[0] if pad is None else pad,
        suppress_tokens=list(range(vocab_size, width)) or None,
    )
    config.save_pretrained(folder)
