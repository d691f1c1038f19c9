"""What a question asks for: percent or a unit; and which numbers an answer may mean by it."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from .plain import powers_of_ten
from .quantities import Quantity, normal, numbers_in, quantities
from .units import UNIT, Unit, common, converted, units_in, units_of

_PERCENT = re.compile(
    r"(?<![0-9])(?<![0-9] )(?<!\bhundred )(?<!ty )(?<!teen )(?<!\bten )(?<!\bfive )(?<!\bone )(?<!\btwo )(?<!\bthree )"
    r"(?:%|\bper ?cent(?:age)?\b)",
    re.IGNORECASE,
)
_ASKED = re.compile(
    rf"\b(?:how many|number of) ({UNIT})|"
    rf"\b(?:in|into|to|as) (?!in\b)({UNIT})"
    r"(?=[?.,;:)]| \(|$| (?:is|are|does|do|did|will|would|was|were|has|of|at|that|when|for)\b)",
    re.IGNORECASE,
)
_MONEY = frozenset("$€£¥₹")
_DOES = r"(?:do|does|did|will|would) \w+(?: \w+)?"
_FIND = r"(?:what|find|calculate)\b[^?.]{0,30}\b"
_KINDS = [  # of a quantity, by the words of the question
    (re.compile(rf"\b(?:{words})\b", re.IGNORECASE), frozenset(dimensions))
    for words, dimensions in (
        (rf"how (?:far|tall|wide|deep)|{_FIND}(?:distance|perimeter|height|width)", {"length"}),
        (rf"how fast|{_FIND}speed", {"length/time"}),
        (rf"how (?:heavy|much does \w+(?: \w+)? weigh)|{_FIND}(?:mass|weight)", {"mass", "tons"}),
        (rf"{_FIND}area", {"length^2", "US area"}),
        (rf"{_FIND}volume", {"length^3", "US volume"}),
        (rf"(?:how much money|(?:how much|what) {_DOES} (?:cost|pay|earn|spend|owe))|{_FIND}(?:price|cost)", _MONEY),
        (r"how (?:much time|long (?:does|do|did|will|would) [^?.]{0,40}\b(?:take|last))", {"time", "calendar"}),
    )
]  # fmt: skip


@lru_cache(maxsize=4096)
def asks_for_percent(prompt: str) -> bool:
    """Tell whether a question asks "what percent": it names percent without a number of them."""
    return _PERCENT.search(prompt) is not None


@lru_cache(maxsize=4096)
def asked_units(prompt: str) -> tuple[Unit, ...]:
    """Return the unit that a question asks for: "How many minutes", "in km/h"; empty where it names none."""
    found = list(_ASKED.finditer(prompt))
    return units_of(found[-1][1] or found[-1][2]) if found else ()


@lru_cache(maxsize=4096)
def asked_dimensions(prompt: str) -> frozenset[str]:
    """Return what the last question is about, as dimensions; empty if that is unclear."""
    question = re.split(r"(?<=[.!?])\s+", prompt.strip())[-1]
    return next((dimensions for words, dimensions in _KINDS if words.search(question)), frozenset())


@lru_cache(maxsize=4096)
def _named(prompt: str) -> frozenset[tuple[Fraction, Unit]]:
    return frozenset((each.value, unit) for each in quantities(normal(prompt)) for unit in each.units)


@lru_cache(maxsize=4096)
def _percents(prompt: str) -> frozenset[Fraction]:
    return frozenset(each.value for each in quantities(normal(prompt)) if each.percent)


def meanings(given: Quantity, reference: Quantity, prompt: str) -> list[Fraction]:
    """Return the numbers that an answer may mean, to be compared with the reference number.

    None for another unit than that of the reference, or of the question; none for a quantity, a power of ten or a
    division that only repeats the question.
    """
    if given.power and given.power in powers_of_ten(prompt):
        return []
    if given.division and numbers_in(prompt).issuperset(given.division):
        return []
    if given.units:
        return [] if asks_for_percent(prompt) and not reference.units else _in_units(given, reference, prompt)
    if asks_for_percent(prompt):
        points = 100 * given.value if given.percent else given.value
        return [points / 100 if reference.percent else points]
    if given.percent and not reference.percent and given.value in _percents(prompt):
        return []
    if given.percent and not reference.percent and abs(reference.value) > 1 and reference.value.denominator == 1:
        return []
    return [given.value]


def _in_units(given: Quantity, reference: Quantity, prompt: str) -> list[Fraction]:
    if reference.units:
        repeats = any((given.value, unit) in _named(prompt) for unit in given.units)
        other = not common(given.units, reference.units)
        return [] if repeats and other else converted(given.value, given.units, reference.units)
    asked = asked_units(prompt)
    if asked:
        return [given.value] if common(given.units, asked) else []
    own = {unit.dimension for unit in given.units}
    kinds = asked_dimensions(prompt)
    if kinds and not kinds & own:
        return []
    there = [unit for unit in _with_powers(units_in(prompt)) if unit.dimension in own]
    if not there:
        money = {unit.dimension for unit in units_in(prompt)} & _MONEY
        return [] if money and own <= _MONEY else [given.value]
    if common(given.units, tuple(there)):
        return [given.value]
    return converted(given.value, given.units, tuple(there)) if len(set(there)) == 1 else []


def _with_powers(units: frozenset[Unit]) -> list[Unit]:
    """Return units, and of lengths also the area and the volume."""
    lengths = [unit for unit in units if unit.dimension == "length"]
    powers = [Unit(f"{each.name}^{n}", f"length^{n}", each.factor**n) for each in lengths for n in (2, 3)]
    return [*units, *powers]


def same(one: Quantity, other: Quantity, prompt: str) -> bool:
    """Tell whether two results of a completion are one: 25 and 25% of a percentage, $8 and 8, 43.33 and 43.3."""
    if one.units and other.units:
        values = converted(one.value, one.units, other.units)
    elif asks_for_percent(prompt):
        values = [100 * one.value if one.percent else one.value]
    else:
        values = [one.value]
    right = 100 * other.value if other.percent and asks_for_percent(prompt) and not other.units else other.value
    places = min(one.places, other.places)
    margin = Fraction(1, 2 * 10**places) if places and one.places != other.places else Fraction(0)
    return any(abs(value - right) <= margin for value in values)


def voted(given: Quantity, prompt: str) -> str:
    """Return a result as a text that is the same for equal ones, for a majority vote."""
    if asks_for_percent(prompt) and not given.units:
        return str(100 * given.value if given.percent else given.value)
    wanted = asked_units(prompt)
    there = wanted or tuple(
        unit for unit in units_in(prompt) if unit.dimension in {each.dimension for each in given.units}
    )
    if not given.units or common(given.units, there):
        return str(given.value)
    values = converted(given.value, given.units, there) if len(there) == 1 else []
    return str(values[0] if values else given.value)
