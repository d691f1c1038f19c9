"""Tokenizers: one token per character by default, one trained on the problems, or any Hugging Face tokenizer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from verifiers.conversation import shown

PAD, EOS = "<pad>", "<eos>"
CHATML_TOKENS = ("<|im_start|>", "<|im_end|>")
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SMALLEST, LARGEST = 256 + 4, 100_000  # sizes of a trained tokenizer: every byte and every special token is in it


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


def trained_size(spec: Any) -> int | None:
    """Return the size in "train:SIZE"; None for any other tokenizer.

    Raises:
        ValueError: for a size that is not a whole number in range.
    """
    if not isinstance(spec, str) or not spec.startswith("train:") or Path(spec).is_dir():
        return None
    size = spec.removeprefix("train:")
    if not re.fullmatch("[0-9]{1,9}", size) or not SMALLEST <= int(size) <= LARGEST:
        raise ValueError(
            f"tokenizer {shown(spec)}: train:SIZE needs a whole number from {SMALLEST} to {LARGEST}, such as train:2000"
        )
    return int(size)


def train_tokenizer(size: int, texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer trained on texts, with single digits and a ChatML template.

    It depends on the texts and the size alone. Its first tokens are `<pad>` (0), `<eos>` (1), `<|im_start|>` and
    `<|im_end|>`; every text can be spelled with it.

    Raises:
        ValueError: if the texts are too few for this size.
    """
    special = (PAD, EOS, *CHATML_TOKENS)
    backend = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in special],
    )
    backend.train_from_iterator(texts, trainer)
    made = backend.get_vocab_size()
    if made < size:
        raise ValueError(
            f"tokenizer 'train:{size}': the training problems have text for {made} tokens only; "
            f"pass train:{made} or less, or more problems"
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=EOS,
        additional_special_tokens=list(CHATML_TOKENS),
        chat_template=CHATML,
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
            first_line = str(error).strip().splitlines()[0].rstrip(".")
            how = "pass a folder; a preset has its own: --model PRESET, in Python agents.policies.tokenizer_of(PRESET)"
            raise ValueError(f"tokenizer {str(spec)!r} cannot be loaded: {first_line}; {how}") from None
    if getattr(tokenizer, "eos_token_id", None) is None:
        raise ValueError(f"tokenizer {spec!r} has no end-of-sequence token: an answer could never end")
    return tokenizer


def control_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Return the ids of all special tokens by their text."""
    added = {token.content: index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    named = {str(token): tokenizer.convert_tokens_to_ids(str(token)) for token in tokenizer.all_special_tokens}
    return added | named


def added_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Return the ids of all special tokens, and of the other added tokens except blank ones, by their text."""
    added = {token.content: index for index, token in tokenizer.added_tokens_decoder.items()}
    return control_tokens(tokenizer) | {text: index for text, index in added.items() if not text.isspace()}


def decode(
    tokenizer: PreTrainedTokenizerBase, completions: Sequence[Sequence[int]], hidden: Collection[int] = ()
) -> list[str]:
    """Return the texts of completions without the hidden tokens; other special tokens are spelled out."""
    completions = [[token for token in ids if token not in hidden] for ids in completions]
    if tokenizer.is_fast:  # what batch_decode does, without its check of every token's type
        return tokenizer.backend_tokenizer.decode_batch(completions, skip_special_tokens=False)
    return tokenizer.batch_decode(completions, skip_special_tokens=False, clean_up_tokenization_spaces=False)
