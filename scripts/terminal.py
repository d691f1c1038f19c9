"""What may be written to a stream: colors, a cursor that moves, the width; and text that is only text.

A pipe or a file gets plain lines. NO_COLOR, FORCE_COLOR, CLICOLOR and CLICOLOR_FORCE decide about colors alone: never
about bars, which need a terminal.
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


def one_line(text: str) -> str:
    """Return a text as `plain`, with tabs and newlines spelled out, too."""
    return plain(text).replace("\t", r"\t").replace("\n", r"\n")


def interactive(stream: Any) -> bool:
    """Tell whether the cursor of a stream can be moved: whether it is a terminal, and not a dumb one."""
    return _is_terminal(stream) and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def colored(stream: Any) -> bool:
    """Tell whether a stream may have colors: as the variables say, else if its cursor can be moved."""
    said = os.environ.get
    if said("NO_COLOR"):
        return False
    if any(said(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return interactive(stream) and said("CLICOLOR") != "0"


def console(error: bool = False) -> Console:
    """Return a console for standard output, or for standard error, as they are now."""
    stream = sys.stderr if error else sys.stdout
    colors, columns = colored(stream), os.environ.get("COLUMNS", "")
    width = None if _is_terminal(stream) else int(columns) if columns.isdecimal() and int(columns) else WIDE
    return Console(
        stderr=error,
        force_terminal=colors or interactive(stream),
        color_system="auto" if colors else None,
        no_color=not colors,
        width=width,
        highlight=False,
    )


def _is_terminal(stream: Any) -> bool:
    return stream is not None and not stream.closed and stream.isatty()
