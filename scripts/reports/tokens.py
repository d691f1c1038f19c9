"""Samples of a report: tokens with their shades, and text escaped for HTML."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..run import said

Row = Mapping[str, Any]  # of samples.jsonl
TEXTS = ("kind", "when", "prompt", "completion", "status")  # columns
MOST_TOKENS, MOST_CHARACTERS = 400, 1500  # of a completion and of a prompt are shown
NUMBERED = 24  # tokens of a completion that has room for numbers below them
STRONGEST = 0.75  # opacity of the strongest shade
DIRECTIONS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C}  # they would turn the page around


@dataclass(frozen=True)
class Token:
    """A token as it is shown.

    Attributes:
        text: visible, see `visible`.
        kind: "sampled", or "reply" for all that the environment wrote after a turn, of which only the text is known.
        paid: the reward of the turn, after the last token of one that was rewarded before the end; else empty.
        probability, credit: as numbers to read; credit is empty outside training.
        doubt: opacity of the shade for an unlikely token.
        sign: "up", "down" or empty, for the shade of the credit; strength is its opacity.
    """

    text: str
    kind: str = "sampled"
    paid: str = ""
    probability: str = ""
    credit: str = ""
    doubt: float = 0.0
    sign: str = ""
    strength: float = 0.0


@dataclass(frozen=True)
class Sample:
    """A completion as it is shown; `name` says when or by whom it was written, `text` is for reading."""

    name: str
    text: str
    tokens: tuple[Token, ...]
    left_out: int
    reward: float
    success: bool | None
    notes: tuple[str, ...]
    parts: tuple[tuple[str, float], ...]

    @property
    def numbered(self) -> bool:
        """Whether it is short enough for numbers below its tokens."""
        return len(self.tokens) <= NUMBERED and not self.left_out


def visible(text: str) -> str:
    """Return text without control characters: they and half surrogates become pictures or escapes; newlines stay."""
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    code = ord(character)
    if 0x7F < code < 0xA0 or 0xD800 <= code < 0xE000 or code in DIRECTIONS:
        return f"\\u{code:04x}"
    if code >= 0x20 or character in "\n\t":
        return "\N{SYMBOL FOR DELETE}" if code == 0x7F else character
    return chr(0x2400 + code)


def shortened(text: str) -> str:
    """Return a prompt; of a very long one, its beginning and its end."""
    half = MOST_CHARACTERS // 2
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters ...]\n{text[-half:]}"


def checked(row: Any) -> Row:
    """Return a row of samples.jsonl if it can be shown.

    Raises:
        ValueError, TypeError, KeyError: if not.
    """
    sample_of(row, "")
    answer, updates = row["answer"], row["updates"]
    if not isinstance(updates, int) or not all(isinstance(x, str) for x in (*map(row.get, TEXTS), answer or "")):
        raise ValueError("a column is of another type")
    return dict(row)


def sample_of(row: Row, name: str, scale: float = 0.0) -> Sample:
    """Return a row of samples.jsonl as it is shown.

    Args:
        row: of that file.
        name: of the sample.
        scale: the advantage with the strongest shade.
    """
    credit = row["advantages"] or [None] * len(row["texts"])
    each = list(zip(row["texts"], row["log_probs"], credit, strict=True))
    notes = ["cut off"] * row["truncated"] + [row["status"].replace("_", " ")] * (row["status"] != "ok")
    return Sample(
        name,
        visible(said(row)),
        tuple(_with_replies([_token(*one, scale) for one in each[:MOST_TOKENS]], row.get("dialogue", ()))),
        max(len(each) - MOST_TOKENS, 0),
        float(row["reward"]),
        row["success"],
        tuple(notes),
        tuple((name, float(value)) for name, value in row["parts"].items()),
    )


def _with_replies(tokens: Sequence[Token], turns: Sequence[Row]) -> Iterator[Token]:
    """Yield the tokens of an episode, and after each turn but the last what was replied and what the turn earned."""
    begin = 0
    for turn in turns[:-1]:
        end = begin + turn["tokens"]
        if end > len(tokens):
            break  # the rest is left out
        yield from tokens[begin:end]
        paid = f"{turn['reward']:+g}" if turn["reward"] else ""
        yield Token(visible(turn["reply"].strip()) or "·", "reply", paid)
        begin = end
    yield from tokens[begin:]


def _token(text: str, log_prob: float | None, credit: float | None, scale: float) -> Token:
    probability = 0.0 if log_prob is None else math.exp(min(log_prob, 0.0))
    strength = STRONGEST * min(abs(credit) / scale, 1.0) if scale and credit is not None else 0.0
    return Token(
        visible(text).replace("\n", "⏎\n") or "·",  # a part of a character
        probability="not finite" if log_prob is None else f"{100 * probability:.3g} %",
        credit="" if credit is None else f"{credit:+.2f}",
        doubt=round(STRONGEST * (1.0 - probability), 3),
        sign="" if not strength else "up" if (credit or 0.0) > 0 else "down",
        strength=round(strength, 3),
    )
