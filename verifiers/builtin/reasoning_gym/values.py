"""Judges answers that are numbers or lists by their value, where the scorer of reasoning-gym is lenient or narrow."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from .shapes import NUMERIC

Entry = Mapping[str, Any]
_NUMBER = re.compile(
    r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?|[-+]?[0-9]{1,60}/0*[1-9][0-9]{0,60}"
)
_LONGEST = 400
_ROUNDING = Fraction(1, 10**9)  # what is known as a float


def number(text: str) -> Fraction | None:
    """Return a number written in digits; None for anything else."""
    bare = re.sub(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", "", text.strip())
    return Fraction(bare) if len(bare) <= _LONGEST and _NUMBER.fullmatch(bare) else None


def is_rounded(text: str, exact: Fraction | float | int, places: int, slack: Fraction = Fraction(0)) -> bool:
    """Tell whether a decimal is an exact value rounded to the digits behind its point, and has at least `places`.

    Fewer digits do if the rest would be zeros.
    """
    value = number(text)
    if value is None:
        return False
    behind = len(text.partition(".")[2]) if "e" not in text.lower() else 0
    used = max(behind, places)
    return abs(value - Fraction(exact)) <= Fraction(1, 2 * 10**used) + slack


def _of_floats(text: str, exact: float, places: int) -> bool:
    return is_rounded(text, exact, places, _ROUNDING)


def _geometry(answer: str, reference: str, entry: Entry) -> bool:
    facts = entry["metadata"]
    if facts["task_type"] == "orthocenter":
        sides = re.fullmatch(r"\(([^,()]*),([^,()]*)\)", answer)
        pairs = zip(sides.groups(), facts["orthocenter_approx"], strict=True) if sides else ()
        return sides is not None and all(_of_floats(text.strip(), exact, 3) for text, exact in pairs)
    exact = facts.get("angle_ABC_degrees", facts.get("incircle_radius_exact"))
    places = len(reference.rstrip("°").partition(".")[2])
    return exact is not None and _of_floats(re.sub(" ?°$", "", answer), float(exact), places)


def _decimal(answer: str, reference: str, entry: Entry) -> bool:
    """As many digits as the reference has, which is rounded to twelve significant ones, or more of them."""
    return is_rounded(answer, Fraction(reference), len(reference.partition(".")[2]))


def _candidate(answer: str, reference: str, entry: Entry) -> bool:
    """The number as the question has it, whatever its notation."""
    offered = map(number, entry["metadata"]["formatted_candidates"])
    right = Fraction(reference)
    nearest = min((each for each in offered if each is not None), key=lambda each: abs(each - right))
    return number(answer) in (right, nearest)


def _probability(answer: str, reference: str, entry: Entry) -> bool:
    value, right = number(answer), Fraction(reference)
    return value is not None and abs(value - right) <= min(Fraction(1, 1000) * right, Fraction(1, 10**4))


def _pooled(answer: str, reference: str, entry: Entry) -> bool:
    rows = [line.split() for line in answer.splitlines()]
    right = entry["metadata"]["solution"]
    return [len(row) for row in rows] == [len(row) for row in right] and all(
        _of_floats(text, exact, 2)
        for row, exacts in zip(rows, right, strict=True)
        for text, exact in zip(row, exacts, strict=True)
    )


def _board(answer: str, reference: str, entry: Entry) -> bool:
    return bool(json.loads(answer) == json.loads(reference))


def _words(answer: str, reference: str, entry: Entry) -> bool:
    return re.split(r", *", answer) == re.split(r", *", reference)


def _items(answer: str, reference: str, entry: Entry) -> bool:
    return _listed(answer) == _listed(reference)


def _listed(text: str) -> list[Any] | None:
    bare = text.strip()
    if bare[:1] != "[" or bare[-1:] != "]":
        return None
    items = [item.strip().strip("\"'") for item in bare[1:-1].split(",")]
    return [item if number(item) is None else number(item) for item in items]


def _letters(answer: str, reference: str, entry: Entry) -> bool:
    return answer.replace(" ", "").lower() == reference.strip().lower()


def _value(answer: str, reference: str, entry: Entry) -> bool:
    value = number(answer)
    return value is not None and value == number(reference)


VALUES: dict[str, Callable[[str, str, Entry], bool]] = {
    **dict.fromkeys(NUMERIC - {"power_function"}, _value),
    "advanced_geometry": _geometry,
    "coin_flip": _probability,
    "decimal_arithmetic": _decimal,
    "figlet_font": _letters,
    "game_of_life": _board,
    "list_functions": _items,
    "number_filtering": _items,
    "number_format": _candidate,
    "number_sorting": _items,
    "pool_matrix": _pooled,
    "word_sequence_reversal": _words,
    "word_sorting": _words,
}


def judged(task: str, answer: str, reference: str, entry: Entry) -> bool | None:
    """Tell whether an answer is right; None where the scorer of the task has to say it."""
    if task == "calendar_arithmetic" and number(reference) is not None:
        return _value(answer, reference, entry)
    if task not in VALUES or (task == "coin_flip" and number(reference) is None):
        return None
    try:
        return VALUES[task](answer, reference, entry)
    except (ValueError, RecursionError):  # of JSON
        return False
