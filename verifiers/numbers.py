"""Numbers as people write them: exact fractions, decimals, thousands, percent, and a unit as a suffix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

LONGEST = 60  # characters of a number
_TAIL = 1_000


@dataclass(frozen=True)
class Number:
    """A number in a text; comparisons ignore the unit.

    Args:
        value: as it is written; 25 for "25%".
        percent: whether percent follow.
        unit: the first of the spellings of its unit; empty without one, or with one that is not in `UNITS`.
    """

    value: Fraction
    percent: bool = False
    unit: str = field(default="", compare=False)


UNITS = (  # symbols, which are case-sensitive, then words; nothing is converted
    ("km", "kilometer|kilometers|kilometre|kilometres"),
    ("m", "meter|meters|metre|metres"),
    ("cm", "centimeter|centimeters|centimetre|centimetres"),
    ("mm", "millimeter|millimeters|millimetre|millimetres"),
    ("mi", "mile|miles"),
    ("ft", "foot|feet"),
    ("in", "inch|inches"),
    ("yd", "yard|yards"),
    ("kg|kgs", "kilogram|kilograms"),
    ("g", "gram|grams"),
    ("mg", "milligram|milligrams"),
    ("lb|lbs", "pound|pounds"),
    ("oz", "ounce|ounces"),
    ("L|l", "liter|liters|litre|litres"),
    ("mL|ml", "milliliter|milliliters|millilitre|millilitres"),
    ("h|hr|hrs", "hour|hours"),
    ("min|mins", "minute|minutes"),
    ("s|sec", "second|seconds"),
    ("", "day|days"),
    ("", "week|weeks"),
    ("", "month|months"),
    ("", "year|years"),
    ("km/h|kph|kmh", "kilometers per hour|kilometres per hour"),
    ("mph", "miles per hour"),
    ("m/s", "meters per second|metres per second"),
    ("m^2|m²", "square meters|square metres"),
    ("cm^2|cm²", "square centimeters|square centimetres"),
    ("m^3|m³", "cubic meters|cubic metres"),
    ("cm^3|cm³", "cubic centimeters|cubic centimetres"),
    ("$|USD", "dollar|dollars"),
    ("€|EUR", "euro|euros"),
    ("£|GBP", ""),
    ("¢", "cent|cents"),
    ("°C", "degrees celsius"),
    ("°F", "degrees fahrenheit"),
    ("°", "degree|degrees"),
)
_NAMES = {
    spelling: f"{symbols}|{words}".strip("|").partition("|")[0]
    for symbols, words in UNITS
    for spelling in f"{symbols}|{words}".split("|")
    if spelling
}
_WORDS = "|".join(sorted((word for _, words in UNITS for word in words.split("|") if word), key=len, reverse=True))
_SIGNS = sorted((sign for signs, _ in UNITS for sign in signs.split("|") if sign), key=len, reverse=True)
_SYMBOLS = "|".join(map(re.escape, _SIGNS))
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_NUMBER = re.compile(
    r"(?<![\w.,/^])(?P<minus>(?<![0-9)])(?<![0-9)] )-)?(?:(?P<sign>[$€£]) ?(?P<sign_minus>-)?)?"
    r"(?P<digits>(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)(?:(?P<power>[eE][-+]?[0-9]{1,2})|"
    r" ?/ ?(?P<parts>[0-9]+)|(?: (?P<over>[0-9]+)/(?P<under>[0-9]+)))?(?![\d½¼¾_]|[eE][-+]?[0-9]|[.,/][0-9])"
    rf"(?: (?P<scale>(?i:{'|'.join(_SCALES)}))\b)?"
    rf" ?(?:(?P<percent>%|(?i:per ?cent\b))|(?P<unit>(?:(?i:{_WORDS})|{_SYMBOLS})(?![\w^²³/])))?"
)
# Part of an operation:
_BEFORE = re.compile(
    r"[0-9)\]] ?[-+*/×÷^] ?\(?$|[+*/×÷^] ?\(?$|(?:√|sqrt) ?[({]?$"
)  # the number is part of an operation
_AFTER = re.compile(r"\)? ?(?:[+*×÷^²³√]|\\sqrt|[-/x] ?[$(0-9.]|\()")
_PERCENT = re.compile(r"%|\bper ?cent", re.IGNORECASE)
_LEAD = re.compile(r" ?(?:(?:about|approximately|exactly|equal to|only|just|therefore|now|:) ?)*", re.IGNORECASE)
_PLAIN = [
    (re.compile(pattern), to)
    for pattern, to in (
        (r"(?<=[0-9]) ?(?=\\[dtc]?frac)", " "),
        (r"\\[dtc]?frac ?\{ ?(-?[0-9]{1,30}) ?\} ?\{ ?([0-9]{1,30}) ?\}", r"\1/\2"),
        (r"(?<=[0-9])(?:\{,\}|\\,|[\u00a0\u2009\u202f])(?=[0-9]{3}(?![0-9]))", ","),
        (r"\\(?:text|textbf|mathrm|mathbf) ?\{([^{}]{0,100})\}", r" \1"),
        (r"\\(?:times|cdot)(?![A-Za-z])|[·∙⋅]", "×"),
        (r"\^ ?\{? ?\\circ ?\}?", "°"),
        (r"\\div(?![A-Za-z])", "÷"),
        (r"\\[()\[\],;:! ]|\*\*|[`\u00a0]", " "),
        (r"\\([%$])", r"\1"),
        (r"\$\$|\$(?! ?[-0-9.])|\$(?=[^$\n]{1,80}\$(?![0-9.]))", " "),
        (r"\N{MINUS SIGN}|\b(?:[Mm]inus|[Nn]egative) (?=[$€£]?[0-9.])", "-"),
        (r"  +", " "),
        (r"([=:(<>{]|\b(?:is|are|be|equals)\b) ?- (?=[$€£]?[0-9.])", r"\1 -"),  # a minus and a space
        (r"\A(\s*)- (?=[$€£]?[0-9.][^\n]*+\s*+\Z)", r"\1-"),  # but at the beginning of one of several lines, a list's
    )
]


def plain(text: str) -> str:
    """Return a text without the Markdown and LaTeX around its numbers; lines stay lines."""
    for pattern, to in _PLAIN:
        text = pattern.sub(to, text)
    return text


def numbers_in(text: str) -> Iterator[Number]:
    """Yield the numbers of a text, without the operands of an operation: of "40 + 3 = 43" the last one."""
    for found in _NUMBER.finditer(plain(text)):
        number = _number(found)
        if number is not None:
            yield number


def first_number(text: str) -> Number | None:
    """Return the first number of a text."""
    return next(numbers_in(text), None)


def last_number(text: str) -> Number | None:
    """Return the last number of a text."""
    found = [*numbers_in(text[-_TAIL:])]
    if len(text) > _TAIL and len(found) < 2:  # the end may begin within a number, or behind its sign
        found = [*numbers_in(text)]
    return found[-1] if found else None


def leading_number(text: str) -> Number | None:
    """Return the number that a text begins with, perhaps after "about" or "exactly"."""
    text = plain(text)
    lead = _LEAD.match(text)
    found = _NUMBER.match(text, lead.end() if lead else 0)
    return None if found is None else _number(found)


def only_number(text: str) -> Number | None:
    """Return the number that a plain text is, with nothing but its unit beside it."""
    found = _NUMBER.fullmatch(text)
    return None if found is None else _number(found)


def _number(found: re.Match[str]) -> Number | None:
    """Return the number of a match; None if it is part of an operation, too long, or a division by zero."""
    text = found.string
    if len(found[0]) > LONGEST or _AFTER.match(text, found.end()):
        return None
    if _BEFORE.search(text[max(0, found.start() - 6) : found.start()]):
        return None
    try:
        value = Fraction(found["digits"].replace(",", "") + (found["power"] or ""))
        if found["parts"]:
            value /= int(found["parts"])
        if found["over"]:
            value += Fraction(int(found["over"]), int(found["under"]))
    except ZeroDivisionError:
        return None
    value *= 10 ** _SCALES.get((found["scale"] or "").lower(), 0)
    unit = found["unit"] or found["sign"] or ""
    name = _NAMES.get(unit) or _NAMES.get(unit.lower(), "")
    return Number(-value if found["minus"] or found["sign_minus"] else value, bool(found["percent"]), name)


def meant(number: Number, reference: Number, prompt: str) -> Fraction:
    """Return the value of a number: percent are hundredths, unless the reference or the prompt says percent."""
    hundredths = number.percent and not (reference.percent or _PERCENT.search(prompt))
    return number.value / 100 if hundredths else number.value


def distance(number: Number, reference: Number, prompt: str) -> Fraction | None:
    """Return how far a number is from a reference; None if both have units, and these differ."""
    if number.unit and reference.unit and number.unit != reference.unit:
        return None
    return abs(meant(number, reference, prompt) - reference.value)
