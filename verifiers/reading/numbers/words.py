"""Numbers in English words and signs: forty-three, two thirds, three and a half, ½."""

from __future__ import annotations

import re
from fractions import Fraction

_ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = (
    "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
_LARGE = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_SMALL = {word: number for number, word in enumerate((*_ONES, *_TEENS))} | _TENS
_PARTS = {
    "half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8,
    "ninth": 9, "tenth": 10,
}  # fmt: skip
_SIGNS = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5", "⅘": "4/5",
    "⅙": "1/6", "⅚": "5/6", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8",
}  # fmt: skip
_TEN = rf"(?:(?:{'|'.join(_TENS)})(?:[- ](?:{'|'.join(_ONES[1:])}))?|{'|'.join((*_TEENS, *_ONES))})"
_HUNDRED = rf"(?:(?:(?:{'|'.join(_ONES[1:])}|a) hundred)(?:(?: and)? {_TEN})?|{_TEN})"
_NUMBER = re.compile(
    rf"\b(?:(?:(?:{_HUNDRED}|a) (?:{'|'.join(_LARGE)})\b(?:,? and |,? )?)+(?:{_HUNDRED}\b)?|{_HUNDRED}\b)(?!')",
    re.IGNORECASE,
)
_ALONE = re.compile(r"(?:exactly |just |only )?\bone(?: \w+){0,3}[.!]?", re.IGNORECASE)
_NOTHING = re.compile(
    r"(?:none|nothing|no \w+)(?: (?:of them|are|is|left|remaining|remains?|at all))+[.!]?", re.IGNORECASE
)
_PART = rf"(?:{'|'.join(_PARTS)})"
_REWRITES = [
    (re.compile(pattern, re.IGNORECASE), to)
    for pattern, to in (
        (r"\bhalf (?:a )?dozen\b", "6"),
        (r"\b(?:a|one) dozen\b", "12"),
        (r"\bone and a half\b", "3/2"),
        (r"\b(?:an?|one) (?P<of>[a-z]+) and a half\b", r"3/2 \g<of>"),
        (r"(?<=[0-9]) (?P<of>[a-z]+) and a half\b", r" 1/2 \g<of>"),
        (r"\bhalf an? (?=[a-z])", "1/2 "),
        (rf"(?<=[0-9])[ -](?:and )?(?:an?|one)[ -](?P<of>{_PART})\b", r" 1/\g<of>"),
        (r"\b(?:an?|one)[ -](?P<of>half|third|quarter|fifth|tenth)\b(?= of\b|[ $*]*[.!]?$)", r"1/\g<of>"),
        (rf"\b(?:one|1)[ -](?P<of>{_PART})\b", r"1/\g<of>"),
        (rf"\b(?P<n>[1-9][0-9]?)[ -](?P<of>{_PART}s?)\b", r"\g<n>/\g<of>"),
    )
]
_PART_WORD = re.compile(rf"/({_PART}?)s?\b", re.IGNORECASE)
_ANY = re.compile(
    rf"\b(?:{'|'.join((*_ONES, *_TEENS, *_TENS, *_LARGE, *_PARTS))}|hundred|dozen|none|nothing|no)", re.IGNORECASE
)
_SIGN = re.compile(rf"(?<![\d/])(\d*) ?([{''.join(_SIGNS)}])(?![\d/])", re.ASCII)


def may_have_words(text: str) -> bool:
    """Tell whether a text may have a number in words; quickly."""
    return _ANY.search(text) is not None


def in_digits(text: str) -> str:
    """Return a text with its numbers in words, and signs such as ½, in digits; "one" alone is a pronoun and stays."""
    if not text.isascii():
        text = _SIGN.sub(lambda found: f"{found[1]} {_SIGNS[found[2]]}".lstrip(), text)
    if not may_have_words(text):
        return text
    text = _NUMBER.sub(_digits, text)
    for pattern, to in _REWRITES:
        text = pattern.sub(to, text)
    return _PART_WORD.sub(lambda found: f"/{_PARTS[found[1].lower()]}" if found[1] else found[0], text)


def alone(text: str) -> Fraction | None:
    """Return 1 for "one" and "one apple", 0 for "none" and "no apples left", where this is the whole text."""
    bare = text.strip(" \t*_$\"'`()")
    if _ALONE.fullmatch(bare):
        return Fraction(1)
    return Fraction(0) if _NOTHING.fullmatch(bare) else None


def _digits(found: re.Match[str]) -> str:
    words = found[0].rstrip(" ,")
    words = words.removesuffix(" and") if words.lower().endswith(" and") else words
    return words + found[0][len(words) :] if words.lower() == "one" else f"{_value(words)}{found[0][len(words) :]}"


def _value(words: str) -> int:
    total = part = 0
    for word in re.findall("[a-z]+", words.lower()):
        if word in _LARGE:
            total, part = total + (part or 1) * _LARGE[word], 0
        elif word == "hundred":
            part = (part or 1) * 100
        else:
            part += _SMALL.get(word, 0)
    return total + part
