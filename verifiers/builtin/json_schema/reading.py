"""Finds the JSON document in a completion, and parses it strictly."""

from __future__ import annotations

import itertools
import json
import math
import re
from fractions import Fraction
from typing import Any

from ...reading.statements.documents import in_language, opened, split
from ...reading.text import WHITESPACE, conclusion

DEEPEST = 32  # arrays and objects inside each other
MOST_DIGITS = 300  # of a number: what a float can hold too

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)  # an open one goes to the end: linear time
_OPENING = re.compile(r"[\[{]")
_PIECE = re.compile(r'"(?:[^"\\\n]|\\.)*+(?:"|\\?(?=\n|\Z))|[][{}]')
_MARKS = " \t\r`*>."  # around a document that has its line for itself
_NO_BRACKET = re.compile(r"[^][{}]+")


def find_document(completion: str) -> str:
    """Return the JSON document that a completion hands over.

    It is the whole completion; else its last block of JSON, or of text; else the only object or array in it outside of
    blocks, or the only one that has its lines for itself. Two that are offered side by side are none.

    Args:
        completion: any text.

    Raises:
        ValueError: if there is none, or none that `read_json` accepts.
    """
    text = opened(conclusion(completion).strip(WHITESPACE), _is_json)
    blocks, outside = split(text)
    if _is_json(text):
        return text
    fitting = in_language(blocks, ("json",)) or in_language(blocks, ("text", "txt", "plaintext"))
    if fitting:
        value = read_json(fitting[-1].text)
        if len(fitting) > 1 and fitting[-1].is_alternative and value != read_json(fitting[-2].text):
            raise ValueError("two documents")
        return fitting[-1].text
    found = list(_in_prose(outside))
    if len(found) > 1:
        found = [each for each in found if each[1]]
    if len(found) != 1:
        raise ValueError(f"{len(found)} documents")
    return found[0][0]


def _is_json(text: str) -> bool:
    try:
        read_json(text)
    except ValueError:
        return False
    return True


def unfenced(text: str) -> str:
    """Return a completion without a fence of backticks around all of it."""
    bare = text.strip(WHITESPACE)
    first, _, rest = bare.partition("\n")
    name = first.removeprefix("```").strip(WHITESPACE).lower()
    if first.startswith("```") and name in ("", "json") and rest.endswith("```"):
        return rest.removesuffix("```")
    return bare


def read_json(text: str) -> Any:
    """Return the value of one JSON document, parsed strictly; its numbers are whole or exact fractions.

    Args:
        text: any text.

    Raises:
        ValueError: if it is none, is nested too deeply, or has a number or a key that is not allowed.
    """
    brackets = _NO_BRACKET.sub("", _STRING.sub("", text))
    depths = itertools.accumulate(1 if bracket in "[{" else -1 for bracket in brackets)
    if any(depth > DEEPEST for depth in depths):
        raise ValueError(f"more than {DEEPEST} levels deep")
    return json.loads(text, parse_int=_whole, parse_float=real, parse_constant=_refused, object_pairs_hook=_no_repeats)


def real(text: str) -> int | Fraction:
    """Return the exact value of a decimal number, so that 19.99 is a multiple of 0.01.

    Raises:
        ValueError: if a float cannot hold it.
    """
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number beyond what a float holds")
    exact = Fraction(text) if number and len(text) <= MOST_DIGITS else Fraction(repr(number))
    return exact.numerator if exact.denominator == 1 else exact


def _in_prose(text: str) -> list[tuple[str, bool]]:
    """Return the objects and arrays in a text, each with whether it has its lines for itself."""
    found: list[tuple[str, bool]] = []
    depth = start = position = 0
    while piece := (_PIECE if depth else _OPENING).search(text, position):
        position = piece.end()
        if piece[0] in "[{":
            start = start if depth else piece.start()
            depth += 1
        elif piece[0] in "]}":
            depth -= 1
            if not depth:
                before = text[text.rfind("\n", 0, start) + 1 : start]
                alone = not (before + text[position:].partition("\n")[0]).strip(_MARKS)
                if _is_json(text[start:position]):
                    found.append((text[start:position], alone))
    return found


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of more than {MOST_DIGITS} digits")
    return int(text)


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key twice in one object")
    return dict(pairs)
