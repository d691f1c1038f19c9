"""Writes what games draw with other characters in those that the tokenizer has."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection

SIMILAR = {
    "‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "…": "...", "→": "->", "×": "x", "·": ".", "•": "*",
    "♠": "S", "♣": "C", "♥": "H", "♦": "D", "○": "o", "●": "*", "√": "v", "✓": "v", "■": "#", "□": ".", "█": "#",
}  # fmt: skip


def spelled(text: str, alphabet: Collection[str]) -> str:
    """Return a text in the characters of an alphabet.

    Others become similar ones: letters lose their accents, suits of cards are S, C, H and D, and boxes are drawn with
    `-`, `|` and `+`. What has no similar character becomes `?`.
    """
    if set(text) <= set(alphabet):
        return text
    return "".join(character if character in alphabet else _similar(character, alphabet) for character in text)


def _similar(character: str, alphabet: Collection[str]) -> str:
    if character in SIMILAR:
        return SIMILAR[character]
    name = unicodedata.name(character, "")
    if name.startswith("BOX DRAWINGS"):
        return "-" if name.endswith("HORIZONTAL") and "VERTICAL" not in name else "+" if "AND" in name else "|"
    plain = "".join(part for part in unicodedata.normalize("NFKD", character) if part in alphabet)
    return plain or ("" if unicodedata.combining(character) or character == "\ufe0f" else "?")
