"""Tokenizers: one token per character by default, or any Hugging Face tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

PAD, EOS = "<pad>", "<eos>"


def character_tokenizer(alphabet: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per character, after `<pad>` (0) and `<eos>` (1).

    It saves and reloads like any other (`save_pretrained`, `AutoTokenizer.from_pretrained`).

    Args:
        alphabet: the characters, in order; repeated ones count once.

    Raises:
        ValueError: if the alphabet is empty.
    """
    if not alphabet:
        raise ValueError("a character tokenizer needs at least one character in its alphabet")
    vocabulary = {token: index for index, token in enumerate([PAD, EOS, *dict.fromkeys(alphabet)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=PAD,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def load_tokenizer(spec: str | Path | PreTrainedTokenizerBase | None, alphabet: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer that `spec` describes.

    Args:
        spec: a folder or model id, a tokenizer object, or None for a character tokenizer over `alphabet`.
        alphabet: used only if `spec` is None.

    Raises:
        ValueError: if there is no such tokenizer, or it has no end-of-sequence token.
    """
    if spec is None:
        return character_tokenizer(alphabet)
    tokenizer: Any = spec
    if isinstance(spec, (str, Path)):
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(spec), trust_remote_code=False)
        except (OSError, ValueError) as error:
            first_line = str(error).strip().splitlines()[0]
            raise ValueError(f"tokenizer {str(spec)!r} cannot be loaded: {first_line}") from error
    if getattr(tokenizer, "eos_token_id", None) is None:
        raise ValueError(f"tokenizer {spec!r} has no end-of-sequence token: an answer could never end")
    return tokenizer


def control_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Return the ids of all special tokens by their text."""
    added = {token.content: index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    named = {str(token): tokenizer.convert_tokens_to_ids(str(token)) for token in tokenizer.all_special_tokens}
    return added | named


def decode(tokenizer: PreTrainedTokenizerBase, completions: list[list[int]]) -> list[str]:
    """Return the texts of completions; special tokens inside are decoded as their own text."""
    if tokenizer.is_fast:  # what batch_decode does, without its check of every token's type
        return tokenizer.backend_tokenizer.decode_batch(completions, skip_special_tokens=False)
    return tokenizer.batch_decode(completions, skip_special_tokens=False, clean_up_tokenization_spaces=False)
