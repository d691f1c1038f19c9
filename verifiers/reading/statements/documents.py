"""Finds the document that a completion hands over: a program, a piece of JSON, a grid.

Models introduce it, fence it and explain it afterwards. Whatever a verifier reads as one document, it finds here, so
that the same completion gives the same document to all of them. Every function takes any text and linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...plugins.arguments import one_of
from ..extraction import STATED, STRICT, extract_rule
from .phrases import OTHERWISE

_RULES = STATED, STRICT
_FENCE = re.compile(r"([ \t]*(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]+)?)(`{3,}|~{3,})[ \t]*([^`]*)")
_QUOTES = '"""', "'''"
_DEEPER = 4  # columns further to the right a fence is part of the block


@dataclass
class Block:
    """What stands between two fences.

    Args:
        indent: columns before the fence.
        fence: the backticks or tildes that opened it.
        name: the first word behind them, in small letters, such as "python"; empty without one.
        before: what stands between the block before and this one.
        lines: its lines.
        closed: whether a fence closes it; else the end of the text does.
    """

    indent: int
    fence: str
    name: str
    before: str = ""
    lines: list[str] = field(default_factory=list)
    closed: bool = False

    def is_closed_by(self, line: str) -> bool:
        """Tell whether a line is the fence that ends this block."""
        fence = line.strip()
        columns = len(line) - len(line.lstrip(" \t"))
        return len(fence) >= len(self.fence) and set(fence) == {self.fence[0]} and columns < self.indent + _DEEPER

    @property
    def is_alternative(self) -> bool:
        """Whether the words before it offer it beside the block before: "or", "alternatively"."""
        return any(OTHERWISE.match(line) for line in self.before.split("\n") if line.strip())

    @property
    def text(self) -> str:
        """The lines without the indentation of the fence."""
        bare = [line[min(self.indent, len(line) - len(line.lstrip(" \t"))) :] for line in self.lines]
        return "\n".join(bare).removesuffix("\n") + "\n"


def document_rule(owner: str, extract: str | None) -> str:
    """Return the argument `extract` of a verifier that reads a document, "stated" or "strict".

    Raises:
        ValueError: if it is neither.
    """
    return extract_rule(owner, extract if extract is None else one_of(owner, "extract", extract, _RULES))


def split(text: str) -> tuple[list[Block], str]:
    """Return the fenced blocks of a text that are not empty, in order, and the lines outside of all blocks.

    A block stands between fences of three or more backticks or tildes, indented or not. Fences in a string of three
    quotes do not count.
    """
    found, outside = _blocks(text)
    return [block for block in found if block.text.strip()], "\n".join(outside)


def opened(text: str, is_document: Callable[[str], bool]) -> str:
    """Return a text whose first fence only closes a document with the fence that is missing above it.

    Args:
        text: any completion. Without that fence, a block in it does not end, or has the beginning of another one in it.
        is_document: whether what stands above the first fence may be the document.
    """
    found, _ = _blocks(text)
    if not found or found[0].name or not is_document(found[0].before):
        return text
    torn = any(not block.closed or any(_opens(line) for line in block.lines) for block in found)
    return f"{found[0].fence}\n{text}" if torn else text


def _opens(line: str) -> bool:
    fence = _FENCE.fullmatch(line.rstrip())
    return fence is not None and bool(fence[3])


def _blocks(text: str) -> tuple[list[Block], list[str]]:
    found: list[Block] = []
    outside: list[str] = []
    last = 0  # where the words before the next block begin
    block: Block | None = None
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
            outside.append(line)
            continue
        words = re.findall(r"[A-Za-z0-9_+#-]+", opened[3])
        name = words[0].lower() if words else opened[3].strip()
        block = Block(len(opened[1]), opened[2], name, "\n".join(outside[last:]))
        last = len(outside)
        found.append(block)
    return found, outside


def in_language(blocks: Sequence[Block], names: Sequence[str]) -> list[Block]:
    """Return the blocks that may be in a language, the best one last.

    One that names the language comes before one that names none, a closed one before one that the end of the text
    closes, and a later one before an earlier one. Blocks that name another language are left out.
    """
    fitting = [block for block in blocks if block.name in names or not block.name]
    return sorted(fitting, key=lambda block: (bool(block.name), block.closed))
