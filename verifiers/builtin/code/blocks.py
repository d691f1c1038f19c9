"""Finds the program in a completion."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_FENCE = re.compile(r"([ \t]*(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]+)?)(`{3,}|~{3,})[ \t]*([^`]*)")
_NAMES = ("python", "python3", "py", "py3")
_QUOTES = '"""', "'''"
_DEEPER = 4  # columns further to the right a fence is part of the block


@dataclass
class _Block:
    indent: int
    fence: str
    name: str
    lines: list[str] = field(default_factory=list)
    closed: bool = False

    def is_closed_by(self, line: str) -> bool:
        fence = line.strip()
        columns = len(line) - len(line.lstrip(" \t"))
        return len(fence) >= len(self.fence) and set(fence) == {self.fence[0]} and columns < self.indent + _DEEPER

    def program(self) -> str:
        """Return the lines without the indentation of the fence."""
        bare = [line[min(self.indent, len(line) - len(line.lstrip(" \t"))) :] for line in self.lines]
        return "\n".join(bare).removesuffix("\n") + "\n"


def program_of(completion: str) -> str:
    """Return the program in a completion: its last block of Python, or all of it without any block.

    A block stands between fences of three or more backticks or tildes, indented or not. One that says `python`, `py` or
    `python3` comes before one that says nothing, and a closed one before one that the end of the text closes; blocks of
    other languages and empty ones do not count, nor do fences in a string of three quotes.
    """
    blocks = [block for block in _blocks(completion) if block.program().strip()]
    for named in (True, False):
        for closed in (True, False):
            fitting = [block for block in blocks if bool(block.name) is named and block.closed is closed]
            if fitting:
                return fitting[-1].program()
    return completion


def _blocks(text: str) -> list[_Block]:
    """Return the blocks of Python, and those of no named language."""
    found: list[_Block] = []
    block: _Block | None = None
    quotes = dict.fromkeys(_QUOTES, 0)
    for line in text.split("\n"):
        if block is not None:
            block.closed = block.is_closed_by(line)
            if block.closed:
                block = None
            else:
                block.lines.append(line)
            continue
        opened = _FENCE.fullmatch(line.rstrip())
        if opened is None or any(count % 2 for count in quotes.values()):
            quotes = {mark: count + line.count(mark) for mark, count in quotes.items()}
            continue
        words = re.findall(r"[A-Za-z0-9_+#-]+", opened[3])
        block = _Block(len(opened[1]), opened[2], words[0].lower() if words else "")
        if not opened[3] or block.name in _NAMES:
            found.append(block)
    return found
