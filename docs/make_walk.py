"""Writes the line numbers of the walk through one update on understand.md: python docs/make_walk.py."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "understand.md"
STATION = re.compile(r"\[[\w.]+:\d+\]\(\.\./(?P<file>[\w/]+\.py)#L\d+\) \| `(?P<code>[^`]+)`")


def pages() -> dict[Path, str]:
    """Return the page, each station with the number of the line that it quotes."""
    return {PAGE: STATION.sub(numbered, PAGE.read_text(encoding="utf-8"))}


def numbered(station: re.Match[str]) -> str:
    """Return a station with its line number.

    Raises:
        ValueError: unless one line of the file, and no other, has the quoted code.
    """
    file, code = station["file"], station["code"]
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    found = [number for number, line in enumerate(lines, 1) if line.strip() == code]
    if len(found) != 1:
        raise ValueError(f"{file} has {len(found)} lines {code!r}; quote one that it has once")
    return f"[{Path(file).name}:{found[0]}](../{file}#L{found[0]}) | `{code}`"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
