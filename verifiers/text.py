"""Functions that read, show and hash texts of any kind, in linear time."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Any

WHITESPACE = " \t\r\n"  # str.strip would also take control characters and spaces that no keyboard has
_BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800\U0001d159")  # letters and symbols that show nothing
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_THOUGHT = re.compile(r"""(?P<quote>["'`])</?think>(?P=quote)|<(?P<end>/)?think>""")
_COMBINING_RUN = bytes([1]) * 31  # Unicode's stream-safe text has 30 at most; normalising is quadratic in the run


def hashed(text: str, size: int) -> int:
    """Return the hash of a text, a whole number of so many bytes."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest(), "big")


def tag_name(owner: str, value: Any) -> str:
    """Return the name of a tag.

    Raises:
        ValueError: if it is none: a letter, then letters, digits, `_` and `-`.
    """
    if not isinstance(value, str) or not _TAG.fullmatch(value):
        raise ValueError(f"{owner}: a tag is a letter, then letters, digits, '_' or '-', such as answer; got {value!r}")
    return value


def shorten(text: str, width: int = 60) -> str:
    """Return a text in one printable line; if it is cut, with its length."""
    shown = ascii(text) if not text.isprintable() or not text.strip() else repr(text)
    return shown if len(shown) <= width else f"{shown[: width - 2]}… ({len(text)} characters)"


def visible(text: str) -> str:
    """Return the text of a token with spaces as ·, line ends and the like escaped."""
    hidden = {each: each.encode("unicode_escape").decode() for each in text if unicodedata.category(each)[0] == "C"}
    return "".join(hidden.get(each, each) for each in text).replace(" ", "·")


def conclusion(text: str) -> str:
    """Return the text after the last thought, `<think>...</think>`, up to one that never ends.

    The last `</think>` ends the thoughts, whether or not they begin here. A tag in quotes, "<think>", is text.
    """
    if "think>" not in text:
        return text
    tags = [tag for tag in _THOUGHT.finditer(text) if not tag["quote"]]
    start = max((tag.end() for tag in tags if tag["end"]), default=0)
    return text[start : next((tag.start() for tag in tags if tag.start() >= start), None)]


def section(text: str, tag: str) -> str | None:
    """Return the text between `<tag>` and `</tag>`; None unless each of the two stands there exactly once."""
    first, last = f"<{tag}>", f"</{tag}>"
    if text.count(first) != 1 or text.count(last) != 1:
        return None
    start, end = text.index(first) + len(first), text.index(last)
    return text[start:end] if start <= end else None


def frame_name(owner: str, value: Any) -> str:
    """Return the value of an argument `inside`: the name of a tag, or of a closing tag such as "/think".

    Raises:
        ValueError: if it is neither.
    """
    closing = isinstance(value, str) and value.startswith("/")
    return f"/{tag_name(owner, value[1:])}" if closing else tag_name(owner, value)


def framed(text: str, frame: str) -> str:
    """Return a text where a verifier with `inside=frame` looks for it."""
    return f"<{frame[1:]}><{frame}>{text}" if frame.startswith("/") else f"<{frame}>{text}</{frame}>"


def in_frame(text: str, frame: str) -> str | None:
    """Return the part that a verifier with `inside=frame` judges: a section, or all after a closing tag; or None."""
    if not frame.startswith("/"):
        return section(text, frame)
    _, closed, after = text.partition(f"<{frame}>")
    return after if closed and f"<{frame}>" not in after else None


def has_visible(text: str) -> bool:
    """Tell whether a text has a letter, digit, punctuation mark or symbol that a reader can see."""
    return any(unicodedata.category(sign)[0] in "LNPS" and sign not in _BLANK for sign in text)


def last_line(text: str) -> str:
    """Return the last line that is not blank, without the whitespace around it."""
    return text.strip(WHITESPACE).rpartition("\n")[2].strip(WHITESPACE)


def collapsed(text: str) -> str:
    """Return the words of a text with one space between them."""
    return " ".join(word for word in re.split(r"[ \t\r\n]+", text) if word)


def normal_form(text: str, form: Any) -> str | None:
    """Return a text in a Unicode normal form; None where it stacks more than 30 combining marks."""
    if text.isascii():
        return text
    if _COMBINING_RUN in bytes(map(bool, map(unicodedata.combining, text))):
        return None
    return unicodedata.normalize(form, text)
