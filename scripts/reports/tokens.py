"""Samples of a report: tokens with their shades, and text escaped for HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..run import said
from .collect import Kind

Row = Mapping[str, Any]  # of samples.jsonl, checked
MOST_TOKENS, MOST_CHARACTERS = 400, 1500  # of a completion and of a prompt are shown
NUMBERED = 24  # tokens of a completion that has room for numbers below them
HELD_OUT = 8  # problems shown before and after
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


@dataclass(frozen=True)
class Card:
    """Completions of one prompt."""

    prompt: str
    answer: str | None
    samples: tuple[Sample, ...]


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


def sample_of(row: Row, name: str, scale: float = 0.0) -> Sample:
    """Return a row of samples.jsonl as it is shown.

    Args:
        row: checked.
        name: of the sample.
        scale: the advantage with the strongest shade.
    """
    credit = row["advantages"] or [None] * len(row["texts"])
    each = list(zip(row["texts"], row["log_probs"], credit, strict=True))
    notes = ["cut off"] * row["truncated"] + [row["status"].replace("_", " ")] * (row["status"] != "ok")
    return Sample(
        name,
        visible(said(row)),
        tuple(_with_replies([_token(*one, scale) for one in each[:MOST_TOKENS]], row["dialogue"])),
        max(len(each) - MOST_TOKENS, 0),
        row["reward"],
        row["success"],
        tuple(notes),
        tuple(row["parts"].items()),
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


def _token(text: str, log_prob: float, credit: float | None, scale: float) -> Token:
    probability = math.exp(min(log_prob, 0.0)) if math.isfinite(log_prob) else 0.0
    known = 0.0 if credit is None or math.isnan(credit) else credit
    strength = STRONGEST * min(abs(known) / scale, 1.0) if scale else 0.0
    return Token(
        visible(text).replace("\n", "⏎\n") or "·",  # a part of a character
        probability=f"{100 * probability:.3g} %" if math.isfinite(log_prob) else "not finite",
        credit="" if credit is None else f"{credit:+.2f}",
        doubt=round(STRONGEST * (1.0 - probability), 3),
        sign="" if not strength else "up" if known > 0 else "down",
        strength=round(strength, 3),
    )


def held_out_cards(kinds: Sequence[Kind]) -> list[Card]:
    """Return problems of the evaluations, each with what was written before training and after it, by kind."""
    shown = []
    for number, kind in enumerate(kinds):
        for row in _rows_of(kind, "evaluation"):
            when, start = row["when"], kinds[0].runs[0].config.get("model")
            if when == "before" and number and kind.runs[0].config.get("model") == start:
                continue  # the kinds start from one policy
            alone = len(kinds) == 1 or (when == "before" and not number)
            shown.append((row, sample_of(row, when if alone else f"{when}, {kind.label}")))
    return _cards(shown)[:HELD_OUT]


def training_cards(kind: Kind) -> list[tuple[int, list[Card]]]:
    """Return the first and the last update of which episodes were kept, each with its episodes by prompt."""
    rows = _rows_of(kind, "training")
    updates = list(dict.fromkeys(row["updates"] for row in rows))
    found = []
    for update in dict.fromkeys([*updates[:1], *updates[-1:]]):
        own = [row for row in rows if row["updates"] == update]
        scale = max((abs(x) for row in own for x in row["advantages"] or () if math.isfinite(x)), default=0.0)
        found.append((update, _cards((row, sample_of(row, "", scale)) for row in own)))
    return found


def _cards(shown: Iterable[tuple[Row, Sample]]) -> list[Card]:
    """Return samples by the problem of their rows."""
    problems: dict[tuple[str, str | None], list[Sample]] = {}
    for row, sample in shown:
        problems.setdefault((row["prompt"], row["answer"]), []).append(sample)
    return [Card(visible(shortened(p)), a and visible(shortened(a)), tuple(own)) for (p, a), own in problems.items()]


def _rows_of(kind: Kind, what: str) -> list[Row]:
    """Return the samples of the first run of a kind that has any."""
    return next((rows for run in kind.runs if (rows := [row for row in run.samples if row["kind"] == what])), [])
