"""Units of quantities: their spellings, and which convert into each other exactly."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple


class Unit(NamedTuple):
    """A unit.

    Args:
        name: the symbol, "km/h" for a rate.
        dimension: units of one dimension convert into each other; "length/time" for a rate.
        factor: how many of the dimension's own unit it is.
    """

    name: str
    dimension: str
    factor: Fraction


# By dimension: the symbol, how many of the dimension's own unit it is, further symbols, and words (without a plural s).
_TABLE: dict[str, list[tuple[str, str, str, str]]] = {
    "length": [
        ("km", "1000", "", "kilometer|kilometre"), ("m", "1", "", "meter|metre"), ("dm", "1/10", "", "decimeter"),
        ("cm", "1/100", "", "centimeter|centimetre"), ("mm", "1/1000", "", "millimeter|millimetre"),
        ("µm", "1/1000000", "μm|um", "micrometer|micron"), ("nm", "1/1000000000", "", "nanometer"),
        ("mi", "1609.344", "", "mile"), ("yd", "0.9144", "yds", "yard"), ("ft", "0.3048", "", "foot|feet"),
        ("in", "0.0254", "", "inch|inches"),
    ],
    "length^2": [("ha", "10000", "", "hectare")],
    "US area": [("acre", "1", "", "acre")],
    "length^3": [
        ("L", "1/1000", "l", "liter|litre"), ("mL", "1/1000000", "ml", "milliliter|millilitre"),
        ("cL", "1/100000", "cl", "centiliter|centilitre"), ("dL", "1/10000", "dl", "deciliter|decilitre"),
    ],
    "US volume": [
        ("gal", "768", "", "gallon"), ("qt", "192", "qts", "quart"), ("pt", "96", "pts", "pint"),
        ("cup", "48", "", "cup"),
        ("fl oz", "6", "fl\\. oz\\.", "fluid ounce"), ("tbsp", "3", "Tbsp", "tablespoon"), ("tsp", "1", "", "teaspoon"),
    ],
    "mass": [
        ("kg", "1000", "kgs", "kilogram|kilo"), ("g", "1", "gm", "gram|gramme"), ("mg", "1/1000", "", "milligram"),
        ("µg", "1/1000000", "μg|mcg", "microgram"), ("t", "1000000", "", "tonne|metric ton"),
        ("lb", "453.59237", "lbs", "pound"), ("oz", "28.349523125", "", "ounce"),
    ],
    "tons": [("ton", "1", "", "ton")],
    "time": [
        ("ms", "1/1000", "", "millisecond"), ("s", "1", "sec|secs", "second"), ("min", "60", "mins", "minute"),
        ("h", "3600", "hr|hrs", "hour"), ("day", "86400", "", "day"), ("week", "604800", "wk|wks", "week"),
    ],
    "calendar": [
        ("month", "1", "mo|mos", "month"), ("year", "12", "yr|yrs", "year"), ("decade", "120", "", "decade"),
        ("century", "1200", "", "century|centuries"),
    ],
    "clock before noon": [("am", "1", "a\\.m\\.|AM", "")],
    "clock after noon": [("pm", "1", "p\\.m\\.|PM", "")],
    "$": [("$", "1", "USD|US\\$", "dollar|buck|us dollar"), ("¢", "1/100", "ct|cts", "cent|penny|pennies")],
    "€": [("€", "1", "EUR", "euro"), ("¢", "1/100", "ct|cts", "cent")],
    "£": [("£", "1", "GBP", "pound"), ("p", "1/100", "", "pence|penny|pennies")],
    "¥": [("¥", "1", "JPY|CNY|RMB", "yen|yuan")],
    "₹": [("₹", "1", "INR|Rs", "rupee")],
    "angle": [("°", "1", "deg", "degree"), ("arcmin", "1/60", "", "arcminute")],
    "radians": [("rad", "1", "", "radian")],
    "°C": [("°C", "1", "℃", "degrees? celsius|degrees? centigrade|celsius|degrees? c|degree")],
    "°F": [("°F", "1", "℉", "degrees? fahrenheit|fahrenheit|degrees? f|degree")],
    "kelvin": [("kelvin", "1", "K", "kelvin")],
    "energy": [
        ("J", "1", "", "joule"), ("kJ", "1000", "", "kilojoule"), ("MJ", "1000000", "", "megajoule"),
        ("Wh", "3600", "", "watt[- ]hour"), ("kWh", "3600000", "", "kilowatt[- ]hour"),
        ("cal", "4.184", "", "calorie"), ("kcal", "4184", "", "kilocalorie"),
    ],
    "power": [("W", "1", "", "watt"), ("kW", "1000", "", "kilowatt"), ("MW", "1000000", "", "megawatt")],
    "force": [("N", "1", "", "newton"), ("kN", "1000", "", "kilonewton")],
    "pressure": [("Pa", "1", "", "pascal"), ("kPa", "1000", "", "kilopascal")],
    "voltage": [("V", "1", "", "volt"), ("kV", "1000", "", "kilovolt")],
    "current": [("mA", "1/1000", "", "milliampere|milliamp"), ("amp", "1", "amps", "ampere")],
    "resistance": [("Ω", "1", "", "ohm")],
    "frequency": [("Hz", "1", "", "hertz"), ("kHz", "1000", "", "kilohertz"), ("MHz", "1000000", "", "megahertz")],
    "length/time": [("mph", "0.44704", "", ""), ("kmh", "5/18", "kph", "")],
    "bytes": [("byte", "1", "", "byte")],
    "KB": [("KB", "1", "kB", "kilobyte")],
    "MB": [("MB", "1", "", "megabyte")],
    "GB": [("GB", "1", "", "gigabyte")],
}  # fmt: skip
_SIGNS = "$€£¥₹"  # stand before their number


def _spellings() -> tuple[dict[str, list[Unit]], dict[str, list[Unit]]]:
    symbols: dict[str, list[Unit]] = {}
    words: dict[str, list[Unit]] = {}
    for dimension, rows in _TABLE.items():
        for name, factor, more, spelled in rows:
            unit = Unit(name, dimension, Fraction(factor))
            for symbol in filter(None, [re.escape(name), *more.split("|")]):
                symbols.setdefault(symbol, []).append(unit)
            for word in filter(None, spelled.split("|")):
                words.setdefault(word, []).append(unit)
    return symbols, words


_SYMBOLS, _WORDS = _spellings()
_SYMBOL = "|".join(
    f"{each}(?! +[a-zA-Z0-9])" if each == "in" else each for each in sorted(_SYMBOLS, key=len, reverse=True)
)
_WORD = "|".join(f"(?:{each})s?" for each in sorted(_WORDS, key=len, reverse=True))
_ONE = (
    rf"(?:(?i:(?:square|sq\.?|cubic|cu\.?) (?:{_WORD})\b)|"
    rf"(?:sq|cu)[. ] ?(?:{_SYMBOL})|(?i:(?:{_WORD})\b)|(?:{_SYMBOL}))"
    r"(?:\^\{?[23]\}?|²|³| (?:squared|cubed)\b)?"
)
UNIT = rf"{_ONE}(?:(?: ?/ ?| per | an? (?=hour|minute|second|day|week|month|year)){_ONE})?(?![\w^°²³])"
_MATCH = re.compile(
    rf"(?P<power>(?:(?i:square|cubic) |(?:sq|cu)[. ] ?))?(?:(?P<word>(?i:{_WORD})\b)|(?P<symbol>{_SYMBOL}))"
    r"(?P<exponent>\^\{?[23]\}?|²|³| (?:squared|cubed)\b)?"
)
_IN_TEXT = re.compile(rf"[{_SIGNS}]|(?i:\b(?:square |cubic )?(?:{_WORD})\b)|(?<=[0-9]) ?(?:{_SYMBOL})(?![\w])")
SIGN = f"[{_SIGNS}]"


@lru_cache(maxsize=4096)
def units_of(text: str) -> tuple[Unit, ...]:
    """Return the units that a spelling may mean: pounds are weight or money."""
    one = _MATCH.match(text)
    if not one:
        return ()
    above = _one(one)
    rest = re.match(r" ?/ ?| per | an? ", text[one.end() :])
    below = _MATCH.match(text[one.end() + rest.end() :]) if rest else None
    if not below:
        return above
    return tuple(
        unit if unit.dimension in _SIGNS
        else Unit(f"{unit.name}/{per.name}", f"{unit.dimension}/{per.dimension}", unit.factor / per.factor)
        for unit in above for per in _one(below)
    )  # fmt: skip


def _one(found: re.Match[str]) -> tuple[Unit, ...]:
    if found["symbol"]:
        made = _SYMBOLS.get(found["symbol"]) or _SYMBOLS[re.escape(found["symbol"])]
    else:
        word = found["word"].lower()
        made = next(units for each, units in _WORDS.items() if re.fullmatch(f"(?:{each})s?", word))
    marks = f"{found['power'] or ''}{found['exponent'] or ''}".lower()
    power = 3 if re.search("3|³|cu", marks) else 2 if marks else 1
    if power == 1:
        return tuple(made)
    return tuple(Unit(f"{each.name}^{power}", f"{each.dimension}^{power}", each.factor**power) for each in made)


def converted(value: Fraction, given: tuple[Unit, ...], wanted: tuple[Unit, ...]) -> list[Fraction]:
    """Return what a quantity is in other units; nothing where the units measure something else."""
    return [
        value * unit.factor / other.factor for unit in given for other in wanted if unit.dimension == other.dimension
    ]


def common(one: tuple[Unit, ...], other: tuple[Unit, ...]) -> bool:
    """Tell whether two spellings may mean the same unit."""
    scales = {(unit.dimension, unit.factor) for unit in other}
    return any((unit.dimension, unit.factor) in scales for unit in one)


@lru_cache(maxsize=4096)
def units_in(text: str) -> frozenset[Unit]:
    """Return the units that a text names, as a word or after a number; of a rate both parts, and their ratio."""
    found = {unit for each in _IN_TEXT.finditer(text) for unit in units_of(each[0].strip())}
    rates = (unit for each in re.finditer(rf"(?<=[0-9]) ?({UNIT})", text) for unit in units_of(each[1]))
    return frozenset(found.union(rates))
