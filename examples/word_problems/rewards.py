"""A reward function of your own, with the signature that TRL uses: `--verifier rewards.py:correct`."""

from __future__ import annotations

import re
from typing import Any

_FINAL = re.compile(r"####\s*(-?\d+)\s*$")


def correct(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
    """Return 1 for each completion that ends with `#### NUMBER` and the right number, else 0."""
    texts = [one if isinstance(one, str) else one[-1]["content"] for one in completions]
    return [float(final(text) == final(right) is not None) for text, right in zip(texts, answer, strict=True)]


def final(text: str) -> str | None:
    """Return the number after the last ####; None if the text does not end with one."""
    found = _FINAL.search(text)
    return found and found[1]
