"""Samples of a report: tokens with their shades."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]  # of samples.jsonl
MOST_TOKENS, MOST_CHARACTERS = 400, 1500  # of a completion and of a prompt are shown
STRONGEST = 75  # percent of the strongest shade


@dataclass(frozen=True)
class Token:
    """A token as it is shown, or a reply of the environment.

    Attributes:
        text: of the token; a line break is visible.
        title: its figures, to read on hovering.
        shade: "doubt" for an unlikely token, "up" or "down" for its credit; "reply" for a reply.
        percent: how strong the shade is.
    """

    text: str
    title: str
    shade: str
    percent: int = 0


def shortened(text: str) -> str:
    """Return a prompt; of a very long one, its beginning and its end."""
    half = MOST_CHARACTERS // 2
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters ...]\n{text[-half:]}"


def tokens_of(row: Row, scale: float | None = None) -> list[Token]:
    """Return the tokens of an episode, and after each turn but the last its reply and its reward.

    Args:
        row: of samples.jsonl.
        scale: the advantage with the strongest shade; None to shade by probability.
    """
    credit = row["advantages"] or [None] * len(row["texts"])
    each = list(zip(row["texts"], row["log_probs"], credit, strict=True))
    return list(_with_replies([_token(*one, scale) for one in each[:MOST_TOKENS]], row.get("dialogue", ())))


def _with_replies(tokens: Sequence[Token], turns: Sequence[Row]) -> Iterator[Token]:
    begin = 0
    for turn in turns[:-1]:
        end = begin + turn["tokens"]
        if end > len(tokens):
            break  # the rest is left out
        yield from tokens[begin:end]
        paid = f" ({turn['reward']:+g})" if turn["reward"] else ""
        yield Token(f"{turn['reply'].strip() or '·'}{paid}", "reply of the environment", "reply")
        begin = end
    yield from tokens[begin:]


def _token(text: str, log_prob: float | None, credit: float | None, scale: float | None) -> Token:
    probability = 0.0 if log_prob is None else math.exp(min(log_prob, 0.0))
    title = "not finite" if log_prob is None else f"probability {100 * probability:.3g} %"
    shade, strength = "doubt", 1.0 - probability
    if scale is not None:
        shade, strength = "down" if (credit or 0.0) < 0 else "up", abs(credit or 0.0) / (scale or 1.0)
    shown = text.replace("\n", "⏎\n") or "·"  # a part of a character
    title += "" if credit is None else f", credit {credit:+.2f}"
    return Token(shown, title, shade, round(STRONGEST * strength))
