"""Tokenizers: one token per character by default, one trained on the problems, or any Hugging Face one; their ends."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import cached_file

from rlenv._checks import first_line
from rlenv._json import read_table
from rlenv.verifiers.conversation import shown

CONFIGS = ("generation_config.json", "config.json")  # transformers ends answers by the first of them that is there
_ABSENT_IS_FINE = {
    f"_raise_exceptions_for_{what}": False for what in ("missing_entries", "connection_errors", "gated_repo")
}
PAD, EOS = "<pad>", "<eos>"
WORTH_THREADS = 2**14  # tokens; decoding fewer takes less time than waking the threads of `decode_batch`
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
    return _wrapped(tokenizer, unk_token=PAD)


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
    return _wrapped(backend, additional_special_tokens=list(CHATML_TOKENS), chat_template=CHATML)


def _wrapped(backend: Tokenizer, **more: Any) -> PreTrainedTokenizerFast:
    ends = {"pad_token": PAD, "eos_token": EOS, "padding_side": "left", "clean_up_tokenization_spaces": False}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **ends, **more)


def load_tokenizer(spec: str | Path | PreTrainedTokenizerBase | None, alphabet: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer that `spec` describes.

    Args:
        spec: a folder or model id, a tokenizer object, or None for a character tokenizer over `alphabet`.
        alphabet: used only if `spec` is None.

    Raises:
        ValueError: if there is no such tokenizer, one of its files is damaged, or it has no end-of-sequence token.
    """
    if spec is None:
        return character_tokenizer(alphabet)
    tokenizer: Any = spec
    if isinstance(spec, (str, Path)):
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(spec), trust_remote_code=False)
        except Exception as error:  # of whatever kind: transformers trusts the files, and tokenizers raises plain ones
            how = "pass a folder; a preset has its own: --model PRESET, in Python policies.tokenizer_of(PRESET)"
            raise ValueError(
                f"tokenizer {str(spec)!r} cannot be loaded: {first_line(error).rstrip('.')}; {how}"
            ) from error
    if getattr(tokenizer, "eos_token_id", None) is None:
        name = type(spec).__name__ if spec is tokenizer else repr(str(spec))
        how = "name one as eos_token, in its tokenizer_config.json"
        raise ValueError(f"tokenizer {name} has no end-of-sequence token: an answer could never end; {how}")
    return tokenizer


def vocabulary_size(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return V, one more than the largest id; `len(tokenizer)` is less if some ids have no token."""
    return _size_of(tokenizer, len(tokenizer))


@lru_cache(maxsize=4)
def _size_of(tokenizer: PreTrainedTokenizerBase, count: int) -> int:
    return max([count - 1, *tokenizer.get_vocab().values()]) + 1  # takes 0.1 s for 150,000 tokens


def decode(
    tokenizer: PreTrainedTokenizerBase, completions: Sequence[Sequence[int]], hidden: Collection[int] = ()
) -> list[str]:
    """Return the texts of completions without the hidden tokens; other special tokens are spelled out."""
    completions = [[token for token in ids if token not in hidden] for ids in completions]
    if tokenizer.is_fast:  # what batch_decode does, without its check of every token's type
        backend = tokenizer.backend_tokenizer
        if sum(map(len, completions)) < WORTH_THREADS:
            return [backend.decode(ids, skip_special_tokens=False) for ids in completions]
        return backend.decode_batch(completions, skip_special_tokens=False)
    return tokenizer.batch_decode(completions, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def stop_token_ids(
    tokenizer: PreTrainedTokenizerBase, end_of_turn: int | None, asked: str | int | Sequence[str | int]
) -> tuple[int, ...]:
    """Return the tokens one of which ends an episode, without repetitions.

    Args:
        tokenizer: its end-of-sequence token comes first; where it was loaded from, there may be a
            generation_config.json, or else a config.json.
        end_of_turn: the chat template's token after a message of the assistant, if any.
        asked: further tokens, as texts or ids.

    Raises:
        ValueError: in one line, for a text that is not one token, an id outside the vocabulary, or one of
            these files that cannot be read.
    """
    found = [tokenizer.eos_token_id, end_of_turn, *_of_checkpoint(tokenizer.name_or_path)]
    known = [token for token in found if token is not None and token < vocabulary_size(tokenizer)]
    several = [asked] if isinstance(asked, (str, int)) else list(asked)
    return tuple(dict.fromkeys([*known, *(_token(tokenizer, each) for each in several)]))


def _of_checkpoint(source: str) -> list[int]:
    """Return the end tokens that a generation_config.json beside the tokenizer names, or without one, a config.json."""
    try:
        found = (cached_file(source, name, **_ABSENT_IS_FINE) for name in CONFIGS if source)
        path = next(filter(None, found), None)
    except OSError:  # it was not loaded from a folder or model id
        path = None
    if path is None:
        return []
    ends = read_table(Path(path)).get("eos_token_id")
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if not all(_is_id(end) for end in ends):
        raise ValueError(f"{path!r}: eos_token_id must be a token id or a list of token ids, got {shown(ends)}")
    return ends


def _token(tokenizer: PreTrainedTokenizerBase, stop: Any) -> int:
    if _is_id(stop):
        if stop < (size := vocabulary_size(tokenizer)):
            return stop
        raise ValueError(f"stop token {stop} is outside the vocabulary; allowed: 0 to {size - 1}")
    if not isinstance(stop, str) or not stop:
        raise ValueError(f"a stop token must be the text or the id of a token, got {shown(stop)}")
    whole = tokenizer.get_vocab().get(stop)
    ids = [whole] if whole is not None else tokenizer(stop, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        several = f"must be one token of the tokenizer, but it is {len(ids)}"
        raise ValueError(f"stop token {shown(stop)} {several}; pass the text as stop_strings (--stop-string)")
    if whole is None and ids[0] == tokenizer.unk_token_id:
        raise ValueError(f"stop token {shown(stop)} is not in the tokenizer's vocabulary")
    return int(ids[0])


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
