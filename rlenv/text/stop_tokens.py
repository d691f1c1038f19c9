"""The tokens that end an episode: the tokenizer's, the chat template's, the checkpoint's, and those the user adds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase
from transformers.utils import cached_file

from verifiers.base import first_line
from verifiers.conversation import shown

GENERATION_CONFIG = "generation_config.json"
_ABSENT_IS_FINE = {
    f"_raise_exceptions_for_{what}": False for what in ("missing_entries", "connection_errors", "gated_repo")
}


def stop_token_ids(
    tokenizer: PreTrainedTokenizerBase, end_of_turn: int | None, asked: str | int | Sequence[str | int]
) -> tuple[int, ...]:
    """Return the tokens one of which ends an episode, without repetitions.

    Args:
        tokenizer: its end-of-sequence token comes first; where it was loaded from, there may be a
            generation_config.json.
        end_of_turn: the chat template's token after a message of the assistant, if any.
        asked: further tokens, as texts or ids.

    Raises:
        ValueError: in one line, for a text that is not one token, an id outside the vocabulary, or a
            generation_config.json that cannot be read.
    """
    found = [tokenizer.eos_token_id, end_of_turn, *_of_checkpoint(tokenizer.name_or_path)]
    known = [token for token in found if token is not None and token < len(tokenizer)]
    several = [asked] if isinstance(asked, (str, int)) else list(asked)
    return tuple(dict.fromkeys([*known, *(_token(tokenizer, each) for each in several)]))


def _of_checkpoint(source: str) -> list[int]:
    """Return the end tokens that a generation_config.json beside the tokenizer names."""
    try:
        path = cached_file(source, GENERATION_CONFIG, **_ABSENT_IS_FINE) if source else None
    except OSError:  # it was not loaded from a folder or model id
        path = None
    if path is None:
        return []
    try:
        config = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path!r} cannot be read: {first_line(error)}") from error
    ends = config.get("eos_token_id") if isinstance(config, dict) else None
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if not all(_is_id(end) for end in ends):
        raise ValueError(f"{path!r}: eos_token_id must be a token id or a list of token ids, got {shown(ends)}")
    return ends


def _token(tokenizer: PreTrainedTokenizerBase, stop: Any) -> int:
    if _is_id(stop):
        if stop < len(tokenizer):
            return stop
        raise ValueError(f"stop token {stop} is outside the vocabulary; allowed: 0 to {len(tokenizer) - 1}")
    if not isinstance(stop, str) or not stop:
        raise ValueError(f"a stop token must be the text or the id of a token, got {shown(stop)}")
    whole = tokenizer.get_vocab().get(stop)
    ids = [whole] if whole is not None else tokenizer(stop, add_special_tokens=False)["input_ids"]
    if len(ids) != 1 or (whole is None and ids[0] == tokenizer.unk_token_id):
        raise ValueError(
            f"stop token {shown(stop)} must be one token of the tokenizer, but it is {len(ids)}"
            if len(ids) != 1
            else f"stop token {shown(stop)} is not in the tokenizer's vocabulary"
        )
    return int(ids[0])


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
