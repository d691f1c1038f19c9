"""Numbers in text: which number a line gives, if any."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from ..expressions import ExpressionError, evaluate
from ..statements.wording import changed, denied
from ..text import last_line

LONGEST_NUMBER = 100
_LONGEST_PART = 1_000
_MOST_NUMBERS = 24  # in a line that is read as a whole, such as 1+2+3+4+5=15
OPENING = "$€£¥#*_\"'`([“‘"
CLOSING = "$€£¥*_\"'`)].,;”’"
NUMBER = re.compile(
    r"[-+]?(?:(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?|"
    r"[-+]?[0-9]+/0*[1-9][0-9]*"
)
_WORD = re.compile(r"[^ \t\r\n=:{}]+")
_SIMPLE_UNIT = (
    r"km|cm|mm|m|mi|ft|in(?! +[a-z])|yd|kg|mg|g|lbs?|oz|t|mL|ml|L|l|hrs?|h|min|ms|sec|s|mph|kmh|kWh|kW|W|V|N|J|Hz|"
    r"am|pm|USD|EUR|GBP|°[CF]?"
)
_UNIT = re.compile(
    rf"(?<=[0-9]) ?((?:{_SIMPLE_UNIT})(?:\^\{{?[23]\}}?|²|³)?"
    rf"(?:/(?:{_SIMPLE_UNIT})(?:\^\{{?2\}}?|²)?)?|/(?:hour|day|week|month|year|person|piece|mile|minute|second))"
    r"(?![\w^°/])"
)
_FRACTION = r"\\[dt]?frac ?(?:\{ ?(-?[0-9]{1,50}) ?\}|([0-9])) ?(?:\{ ?([0-9]{1,50}) ?\}|([0-9]))"
_REWRITES = [
    (re.compile(pattern), to)
    for pattern, to in (
        (r"(?<=[0-9])(?:\{,\}|\\,|[\u00a0\u2009\u202f])(?=[0-9]{3}(?![0-9]))", ","),
        (r"[\u00a0\u2009\u202f]|\\[,:; !]|\\q?quad(?![A-Za-z])", " "),
        (r"\\[()\[\]]", "$"),
        (r"\\(?:boxed|mathbf) ?\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}", r"$\1$"),
        (r"\\(?:text(?:bf|it|rm)?|mathrm|mbox) ?\{([^{}]*)\}", r" \1 "),
        (r"(?<=[a-z]) (?=\^)", ""),
        (r" {2,}", " "),
        (r"\\([%$])", r"\1"),
        (r"\\approx(?![A-Za-z])|[~≈]", "="),
        (r"[-=]{1,2}>|[→⇒]", ":"),
        (r"\^ ?\{? ?\\circ ?\}?", "°"),
        (rf"(?<=[0-9]) ?{_FRACTION}", r" \1\2/\3\4"),
        (_FRACTION, r"\1\2/\3\4"),
        (r"(^|[=:,($*]|\b(?:is|are|was|be|equals?|to|of|gives?)) ?(?:[Mm]inus|[Nn]egative) (?=[$€£¥]?[0-9.])", r"\1 -"),
        (r"-([$€£¥])(?=[0-9.])", r"\1-"),
        (r"(?<=[0-9]) ?(?:%|per ?cent(?![A-Za-z]))", "%"),
        (r"(?<=[*_`\"'$])!+(?=\s|$)", ""),
    )
]
_POWER_OF_TEN = re.compile(
    r"(?<![\w.,^)}*/])(?:([-+]?[0-9]{1,50}(?:\.[0-9]{1,50})?) ?(?:×|\*|·|x|\\times|\\cdot) ?|([-+]?))"
    r"10 ?(?:\^|\*\*) ?[{(]? ?([-+]?[0-9]{1,3}) ?[)}]?(?![\w^!]|\.[0-9])"
)
_ASKS_FOR_PERCENT = re.compile(
    r"\b(?:what|which|how many) (?:%|per ?cent)|\b(?:as|in) (?:a )?(?:%|per ?cent)", re.IGNORECASE
)
_MIXED = re.compile(r"(?<![\w.,/])([-+]?)([0-9]{1,9}) ([0-9]{1,9})/([0-9]{1,9})(?![\w/]|\.[0-9])")
_ARITHMETIC = re.compile(r"(?:^-)?[0-9(][-0-9+*/(). ]*$")


@dataclass(frozen=True)
class Reading:
    """The number that a text gives.

    Args:
        value: the number; percent are hundredths.
        unit: the symbol of the unit after it, empty without one.
        percent: whether it was written in percent.
        places: the digits behind its point.
        power: 1e6 where it was written as 10^6, else empty.
    """

    value: Fraction
    unit: str = ""
    percent: bool = False
    places: int = 0
    power: str = ""


def read(text: str, strict: bool = True) -> Reading | None:
    """Return what a text gives as its number, None where it gives none or where it is unclear which.

    Args:
        text: any text.
        strict: whether the number has to be the only one in the last line; else it is the last one of the text.
    """
    part = last_line(text)[0] if strict else text
    if len(part) > _LONGEST_PART:
        if strict:
            return None
        part = re.split(r"[ \t\r\n]", part[-_LONGEST_PART:], maxsplit=1)[-1]  # the first word may be half a word
    lines = [part] if strict else [line for line in part.split("\n") if has_digit(line)][-1:]
    return _read_line(lines[0], strict) if lines else None


def meanings(given: Reading, reference: Reading, prompt: str) -> list[Fraction]:
    """Return the numbers that a completion may mean: none for another unit than that of the reference.

    None either for a power of ten that the prompt has; and 25% is 25, not 0.25, where the prompt asks for percent.
    """
    if (given.unit and reference.unit and given.unit != reference.unit) or given.power in powers_of_ten(prompt):
        return []
    asked = given.percent and not reference.percent and _ASKS_FOR_PERCENT.search(prompt)
    return [100 * given.value] if asked else [given.value]


def _read_line(line: str, strict: bool) -> Reading | None:
    if strict and len(re.findall("[0-9]+", line)) > _MOST_NUMBERS:
        return None
    plain = plain_text(line)
    units = [found[1].replace("²", "^2").replace("³", "^3") for found in _UNIT.finditer(plain)]
    text = _UNIT.sub("", plain)
    words = [(found.start(), found.group()) for found in _WORD.finditer(text) if has_digit(found.group())]
    if not words or (strict and len(words) > 1 and not _comes_to_the_same(text)):
        return None
    start, word = words[-1]
    bare = word.lstrip(OPENING)
    start += len(word) - len(bare)
    bare = bare.rstrip(CLOSING)
    value, before, after = number_value(bare), text[:start], text[start + len(bare) :]
    if not strict:
        before = re.sub(r"\b(?:either|or)\s*$", "", before)
    if value is None or changed(before, after) or denied(before, after):
        return None
    power = bare if bare in powers_of_ten(line) else ""
    decimals = re.search(r"\.([0-9]+)(%?)$", bare)
    places = len(decimals[1]) + 2 * len(decimals[2]) if decimals else 0
    return Reading(value, units[-1] if units else "", bare.endswith("%"), places, power)


def powers_of_ten(text: str) -> list[str]:
    """Return the powers of ten in a text, such as 1e6 for 10^6."""
    return [_exponential(found) for found in _POWER_OF_TEN.finditer(_rewritten(text))]


def has_digit(text: str) -> bool:
    """Tell whether a text has a digit of any script, or a sign such as ½."""
    return any(character.isnumeric() and not character.isalpha() for character in text)


def _rewritten(line: str) -> str:
    text = line.replace("\N{MINUS SIGN}", "-")
    for pattern, to in _REWRITES:
        text = pattern.sub(to, text)
    return text


def plain_text(line: str) -> str:
    """Return a line with powers of ten, mixed numbers, signs in words and LaTeX in the notation of `NUMBER`."""
    return _MIXED.sub(_improper, _POWER_OF_TEN.sub(_exponential, _rewritten(line)))


def _exponential(found: re.Match[str]) -> str:
    return f"{found[1] or f'{found[2]}1'}e{found[3]}"


def _improper(found: re.Match[str]) -> str:
    sign, whole, part, parts = found[1], *map(int, found.groups()[1:])
    return f"{sign}{whole * parts + part}/{parts}" if part < parts else found[0]


def number_value(word: str) -> Fraction | None:
    """Return the number that a word is, in ASCII digits; percent are hundredths."""
    bare = word.removesuffix("%")
    if len(word) > LONGEST_NUMBER or not NUMBER.fullmatch(bare):
        return None
    return Fraction(bare.replace(",", "")) / (1 if bare == word else 100)


def _comes_to_the_same(text: str) -> bool:
    """Tell whether a line is a chain such as "9 * 2 = 18", and all its sides are the same number."""
    *sides, last = re.sub(r"×|·|\\times|\\cdot", "*", text.replace("÷", "/").replace("\\div", "/")).split("=")
    words = [word for word in _WORD.findall(last) if has_digit(word)]
    value = number_value(words[0].strip(OPENING + CLOSING)) if len(words) == 1 else None
    if value is None or not sides:
        return False
    return all(_side(re.sub(r"[$€£¥]|(?<=[0-9]),(?=[0-9]{3})", "", side).strip(), value) for side in sides)


def _side(side: str, value: Fraction) -> bool:
    """Tell whether one side of a chain is that number, or names it; words may stand before the arithmetic."""
    found = _ARITHMETIC.search(side)
    if not has_digit(side):
        return side[-1:] not in tuple("!<>/+-*^≠")
    before = side[: found.start()] if found else ""
    if not found or has_digit(before) or before[-1:].isalpha() or changed(before, ""):
        return False
    arithmetic = re.sub(r"([0-9]+)\.([0-9]+)", _as_fraction, found[0].strip())
    try:
        return evaluate(f"0{arithmetic}" if arithmetic[0] == "-" else arithmetic, whole=False)[0] == value
    except ExpressionError:
        return False


def _as_fraction(found: re.Match[str]) -> str:
    return f"({int(found[1] + found[2])}/{10 ** len(found[2])})"
