"""Streams: their colors and width, and text that is only text.

Colors are rich's decision, with NO_COLOR and FORCE_COLOR; bars need a terminal. A pipe or a file gets plain lines.
"""

from __future__ import annotations

import re

from rich.console import Console

WIDE = 160  # columns of a table that goes into a pipe or a file
# All but tab and newline, marks that turn the direction of writing around, and half surrogates, which no file can hold.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    """Return a text with its control characters spelled out, so that it cannot move the cursor or change colors."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def console(error: bool = False) -> Console:
    """Return a console for standard output, or for standard error, as they are now."""
    screen = Console(stderr=error, highlight=False)
    if not screen.file.isatty():
        screen.width = WIDE
    return screen
