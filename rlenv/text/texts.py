"""Small helpers for texts."""

from __future__ import annotations

from typing import Any

NOT_UNICODE = "this is not Unicode text: it contains half of a surrogate pair"


def shown(value: Any) -> str:
    """Return a value for an error message: in one line, and shortened to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def is_unicode(text: str) -> bool:
    """Tell whether a text can be encoded; half of a surrogate pair cannot."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
