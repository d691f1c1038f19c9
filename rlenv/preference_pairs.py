"""Preference pairs from a file: a prompt, a chosen and a rejected completion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlenv._checks import check_number
from rlenv.verifiers.conversation import NOT_UNICODE, PromptText, as_conversation, is_unicode, shown, text_of
from rlenv.verifiers.problem import as_split
from rlenv.verifiers.text import hashed

from .encoder import Encoder
from .problems import SPLITS, side_of
from .rows import Row, check_columns, columns_of, made_of, read_rows

COLUMNS = ("prompt", "chosen", "rejected", "split")


@dataclass(frozen=True)
class Pair:
    """Two completions of a prompt, of which one is better; `split` is train, test or None."""

    prompt: PromptText
    chosen: str
    rejected: str
    split: str | None = None


def load_pairs(path: str | Path, columns: Mapping[str, str] | None = None) -> list[Pair]:
    """Return the pairs of a file, in its order.

    Args:
        path: any file that `rows.read_rows` reads.
        columns: which column of the file to use for `prompt`, `chosen`, `rejected` and `split`. A file without a
            column of prompts has them in both completions.

    A prompt may be a conversation, a list of messages, and a completion a list with the assistant's next message; or
    both completions are whole conversations without a column of prompts.

    Raises:
        ValueError: in one line, for a file that cannot be read, a missing column, and malformed rows with their lines.
    """
    path, columns = Path(path), dict(columns or {})
    if unknown := [name for name in columns if name not in COLUMNS]:
        raise ValueError(f"unknown column {unknown[0]!r} of pairs; allowed: {', '.join(COLUMNS)}")
    rows = read_rows(path)
    needed = {"chosen": "chosen", "rejected": "rejected", **columns}
    check_columns(path, columns_of(rows), {column: f"--column {name}=NAME" for name, column in needed.items()})
    return [pair for _, pair in made_of(path, rows, lambda row: _pair(row, columns))]


def split_pairs(pairs: list[Pair], test_fraction: float) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs to learn from and the held-out ones; pairs with the same prompt stay together.

    A pair that names its split belongs to it; the others are assigned by a hash of the prompt.
    """
    check_number("test_fraction", test_fraction, 0, 1)
    keys = [hashed(text_of(pair.prompt) or pair.chosen, 8) for pair in pairs]
    sides = [side_of(pair.split, key, test_fraction) for pair, key in zip(pairs, keys, strict=True)]
    train, held_out = ([pair for pair, side in zip(pairs, sides, strict=True) if side == name] for name in SPLITS)
    if not train:
        raise ValueError(f"none of the {len(pairs)} pairs is in the train split ({test_fraction=})")
    return train, held_out


def encode_pairs(encoder: Encoder, pairs: Sequence[Pair], chat: bool) -> tuple[list[list[int]], list[list[int]]]:
    """Return the tokens of the chosen and of the rejected texts, prompts included, as a reward model reads them.

    Args:
        encoder: see `Encoder.answered`.
        pairs: to encode.
        chat: whether the chat template renders conversations; else they are the lines of `Problem.text`.

    Raises:
        ValueError: for a text that the tokenizer cannot spell, or a conversation that its template cannot render.
    """
    prompts = [pair.prompt if chat else text_of(pair.prompt) for pair in pairs]
    sides = [pair.chosen for pair in pairs], [pair.rejected for pair in pairs]
    for answers in sides if pairs else ():
        whole = [
            text if encoder.is_chat(prompt) else f"{prompt}{text}"
            for prompt, text in zip(prompts, answers, strict=True)
        ]
        encoder.spell("text", whole, add_special_tokens=True)
    chosen, rejected = (encoder.answered(prompts, answers) for answers in sides)
    return chosen, rejected


def _pair(row: Row, columns: Mapping[str, str]) -> Pair:
    given = [row.get(columns.get(name, name), "" if name == "prompt" else None) for name in COLUMNS[:3]]
    prompt, chosen, rejected = _parts(*given)
    text = text_of(prompt)
    if not all(map(is_unicode, (text, chosen, rejected))):
        raise ValueError(NOT_UNICODE)
    if not text + chosen or not text + rejected:
        raise ValueError("the text is empty")
    if chosen == rejected:
        raise ValueError("chosen and rejected are the same text")
    return Pair(prompt, chosen, rejected, as_split(row.get(columns.get("split", "split"))))


def _parts(prompt: Any, chosen: Any, rejected: Any) -> tuple[PromptText, str, str]:
    """Return a prompt and the texts of its completions, whichever of them are conversations."""
    if prompt == "" and isinstance(chosen, list) and isinstance(rejected, list):
        prompt, chosen, other, rejected = chosen[:-1], chosen[-1:], rejected[:-1], rejected[-1:]
        if prompt != other:
            raise ValueError("chosen and rejected must be the same conversation up to their last message")
    if isinstance(prompt, list):
        return as_conversation(prompt), _completion("chosen", chosen), _completion("rejected", rejected)
    if not isinstance(prompt, str):
        raise ValueError(f"prompt must be text or a list of messages, got {shown(prompt)}")
    return prompt, _completion("chosen", chosen), _completion("rejected", rejected)


def _completion(name: str, value: Any) -> str:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
        message = value[0]
        if message.get("role") == "assistant" and isinstance(message.get("content"), str):
            return message["content"]
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text or a list with one message of the assistant, got {shown(value)}")
    return value
