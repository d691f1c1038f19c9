"""Quantities in a text: each number with its sign, percent, magnitude and unit."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from .plain import LONGEST_NUMBER, NUMBER, has_digit, number_value, plain_text
from .units import SIGN, UNIT, Unit, converted, units_of
from .words import in_digits, may_have_words


class Quantity(NamedTuple):
    """A number that a text gives.

    Args:
        value: the number; percent are hundredths.
        units: what its unit may be; empty without one that is known.
        percent: whether it was written in percent.
        power: "1e6" where it was written as 10^6, else empty.
        division: what is divided by what, where that comes out even: 1000/8.
        places: the digits behind its point.
        start: where it begins in the text.
        end: where it ends.
    """

    value: Fraction
    units: tuple[Unit, ...] = ()
    percent: bool = False
    power: str = ""
    division: tuple[int, ...] = ()
    places: int = 0
    start: int = 0
    end: int = 0


_LARGE = {
    "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12,
    "k": 10**3,
}  # fmt: skip
_MATHS = re.compile(r"\$(?! )([^$\n]{1,300}?)(?<! )\$(?![0-9])|\$ ([^$\n]{1,300}) \$(?! ?[0-9])")
_QUANTITY = re.compile(
    rf"(?:(?P<minus>(?<![\w)])[-+] ?(?={SIGN}))?(?P<sign>(?:US|[ACN]Z?)?{SIGN}) ?)?"
    rf"(?<![\w^_])(?<![0-9][.,:/])(?P<number>(?<![\w)])(?:{NUMBER.pattern})|(?<=[\w)][-+])(?:{NUMBER.pattern}))"
    r"(?:(?P<percent>%)| ?(?P<large>hundred|thousand|million|billion|trillion|dozen)s?\b|(?P<k>[kK])(?![\w]))?"
    rf"(?: ?-?(?P<unit>{UNIT}))?(?:/[a-z]{{3,}})?(?![\w^_°]|[.,:/][0-9])",
)
_BELOW_ZERO = re.compile(rf"(?<![-\w.])([0-9][0-9.,]*)((?: ?{UNIT})?) below (?:zero|0)\b")
_MONTH = "(?:Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec)[a-z]*[.]?"
_DAY = "[0-9]{1,2}(?:st|nd|rd|th)?"
_NOISE = re.compile(
    r"\bor so\b|\\(?:left|right)(?![a-z])|\\displaystyle|"
    r"\b(?:rounded )?(?:to|at) (?:the nearest [\w-]+|[\w]+ (?:decimals?|d\.?p\.?|significant|places?)(?: \w+)?)\b|"
    rf"\b(?:{_MONTH} {_DAY}|{_DAY} {_MONTH}),? (?=[0-9]{{4}}\b)"
)
_SPACED = re.compile(r"(?<![\w.,/^-])([1-9][0-9]{0,2}(?: [0-9]{3})+)(?![\w.,/^]?[0-9])")
_INVISIBLE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
_BROKEN = re.compile(f"{_INVISIBLE}+(?=[0-9.])|(?<=[0-9.]){_INVISIBLE}+")
_OF_A = re.compile(rf"(?<=[0-9])(/[0-9]+) of an? (?={UNIT})")


def may_have_quantity(text: str) -> bool:
    """Tell whether a text has a digit, or words that may be a number; quickly."""
    return has_digit(text) or may_have_words(text)


@lru_cache(maxsize=4096)
def normal(text: str) -> str:
    """Return a text with its numbers in one notation: without LaTeX, dollars of formulas and words for numbers."""
    text = _NOISE.sub("", _BROKEN.sub("_", text)).replace("\\$", "\x01")
    text = _without_dollars(plain_text(in_digits(plain_text(_without_dollars(text))))).replace("\x01", "$")
    text = _SPACED.sub(lambda found: found[1].replace(" ", ","), _OF_A.sub(r"\1 ", text))
    return _BELOW_ZERO.sub(r"-\1\2", text) if "below" in text else text


def _without_dollars(text: str) -> str:
    return _MATHS.sub(lambda found: f" {found[1] or found[2]} ", text) if "$" in text else text


def quantities(text: str) -> list[Quantity]:
    """Return the quantities in a text in normal notation, from first to last."""
    return [found for each in _QUANTITY.finditer(text) if (found := _quantity(each)) is not None]


def _quantity(found: re.Match[str]) -> Quantity | None:
    number = found["number"]
    if len(number) > LONGEST_NUMBER:
        return None
    value = number_value(number)
    if value is None:
        return None
    if (found["minus"] or "").startswith("-"):
        value = -value
    large = (found["large"] or found["k"] or "").lower()
    value = value * _LARGE.get(large, 1) / (100 if found["percent"] else 1)
    units = units_of(found["unit"]) if found["unit"] else units_of(found["sign"][-1]) if found["sign"] else ()
    places = len(number.partition(".")[2]) if "e" not in number.lower() and not large else 0
    power = number if re.fullmatch("[-+]?1e[0-9]+", number) else ""
    above, slash, below = number.lstrip("+-").partition("/")
    division = (int(above), int(below)) if slash and int(below) > 1 and int(above) % int(below) == 0 else ()
    percent = bool(found["percent"])
    return Quantity(value, units, percent, power, division, places + 2 * percent, found.start(), found.end())


def summed(first: Quantity, second: Quantity) -> Quantity | None:
    """Return "2 hours 30 minutes" as one quantity; None if the second unit is not a part of the first."""
    for unit in first.units:
        for part in second.units:
            whole = 0 <= second.value * part.factor < unit.factor and first.value.denominator == 1
            if unit.dimension == part.dimension and part.factor < unit.factor and whole:
                value = first.value + converted(second.value, (part,), (unit,))[0]
                return first._replace(value=value, units=(unit,), end=second.end)
    return None


@lru_cache(maxsize=4096)
def numbers_in(prompt: str) -> frozenset[Fraction]:
    """Return the numbers that a question names; 25 percent are both 25 and 0.25."""
    found = quantities(normal(prompt))
    return frozenset([each.value for each in found] + [100 * each.value for each in found if each.percent])
