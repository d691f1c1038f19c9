"""What may be written to a stream: colors, a cursor that moves, the width; and text that is only text.

Colors are rich's decision, with NO_COLOR and FORCE_COLOR; bars need a terminal. A pipe or a file gets plain lines.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from rich.console import Console

WIDE = 160  # columns of a table that goes into a pipe or a file
# All but tab and newline, marks that turn the direction of writing around, and half surrogates, which no file can hold.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    """Return a text with its control characters spelled out, so that it cannot move the cursor or change colors."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def interactive(stream: Any) -> bool:
    """Tell whether the cursor of a stream can be moved: whether it is a terminal, and not a dumb one."""
    return _is_terminal(stream) and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def console(error: bool = False) -> Console:
    """Return a console for standard output, or for standard error, as they are now."""
    width = None if _is_terminal(sys.stderr if error else sys.stdout) or "COLUMNS" in os.environ else WIDE
    if os.environ.get("NO_COLOR"):
        return Console(stderr=error, color_system=None, width=width, highlight=False)
    return Console(stderr=error, width=width, highlight=False)


def _is_terminal(stream: Any) -> bool:
    return stream is not None and not stream.closed and stream.isatty()
