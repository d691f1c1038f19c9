"""Finds the program in a completion."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ...reading.statements.documents import in_language, opened, split
from ...reading.text import conclusion

_NAMES = ("python", "python3", "py", "py3")
_DEFINED = re.compile(r"^(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]*)?=(?!=)", re.MULTILINE)
_IMPORTED = re.compile(r"^(?:from[ \t]+[\w.]+[ \t]+)?import[ \t]+([^\n#]+)", re.MULTILINE)
_BEGINS = re.compile(
    r"\s*(?:(?:async[ \t]+)?def[ \t]+\w+[ \t]*\(|class[ \t]+\w+[ \t]*[(:]|@\w|import[ \t]+\w"
    r"|from[ \t]+[\w.]+[ \t]+import\b)"
)
_TALKS = re.compile(r"\b(?:print|input|stdout|stdin)\b")
_WITHDRAWN = re.compile(r"^(?:pass|(?:raise|return)\b.*|\.\.\.)\s*$", re.MULTILINE)  # in place of a program


def program_of(completion: str, functions: Collection[str] = (), last: bool = False) -> str:
    """Return the program in a completion: a block of Python in it, or all of it without any block.

    Args:
        completion: any text.
        functions: what the tests call; empty for a program that reads standard input and prints.
        last: take the last block, whatever is in it.
    """
    if last:
        fitting = in_language(split(completion)[0], _NAMES)
        return fitting[-1].text if fitting else completion
    text = opened(conclusion(completion), _is_program)
    texts = [block.text for block in in_language(split(text)[0], _NAMES)]
    if not texts:
        return text
    chosen = _chosen(texts, functions)
    return "\n".join([*_needed(texts[:chosen], texts[chosen]), texts[chosen]])


def _is_program(text: str) -> bool:
    return _BEGINS.match(text) is not None


def _chosen(texts: Sequence[str], functions: Collection[str]) -> int:
    """Return which block is the solution: the last one that defines a function under test, or that reads or prints.

    Later ones show how it is used or what it prints, unless one withdraws it.
    """
    if functions:
        fitting = [index for index, text in enumerate(texts) if not _defined(text).isdisjoint(functions)]
    else:
        fitting = [index for index, text in enumerate(texts) if _TALKS.search(text)]
    last = len(texts) - 1
    return last if not fitting or any(map(_WITHDRAWN.search, texts[fitting[-1] + 1 :])) else fitting[-1]


def _needed(earlier: Sequence[str], program: str) -> list[str]:
    """Return the earlier blocks that define or import a name which the program uses and does not have."""
    words = set(re.findall(r"\w+", program))
    needed: list[str] = []
    for text in reversed(earlier):
        own = _defined(program) | _imported(program)
        if (_defined(text, values=False) | _imported(text)) & words - own:
            needed.insert(0, text)
            program += text
            words |= set(re.findall(r"\w+", text))
    return needed


def _defined(text: str, values: bool = True) -> set[str]:
    return {found[1] or found[2] for found in _DEFINED.finditer(text) if found[1] or values}


def _imported(text: str) -> set[str]:
    return {name for found in _IMPORTED.finditer(text) for name in re.findall(r"\w+", found[1])}
