"""Small helpers for texts."""

from __future__ import annotations

NOT_UNICODE = "this is not Unicode text: it contains half of a surrogate pair"


def is_unicode(text: str) -> bool:
    """Tell whether a text can be encoded; half of a surrogate pair cannot."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
