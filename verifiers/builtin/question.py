"""What a question says about the answers to it."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from .asked import asked_dimensions, asked_units, asks_for_percent
from .quantities import Quantity, numbers_in

_SHARE = re.compile(r"probability|fraction|proportion|likelihood|chance|what (?:part|portion)", re.IGNORECASE)
_NOUN = re.compile(r"\bhow (?:many|much)? ?([a-z]+)", re.IGNORECASE)
_ONE_WORD = {  # for two
    "wide": "width", "long": "length", "tall": "height", "high": "height", "deep": "depth", "old": "age",
    "heavy": "weight", "weigh": "weight", "fast": "speed", "cost": "price",
}  # fmt: skip
_SMALL_WORDS = frozenset(
    re.findall(
        "[a-z]+",
        "the an of is are was were it its that this which so therefore thus hence and or in to be would will must has "
        "have had he she they there for at on by with we you his her their one "
        "do does did can may should much many more",
    )
)


class Question(NamedTuple):
    """What a question says about the answers to it.

    Args:
        known: the numbers in it.
        factorials: whether it speaks of factorials, so that "3!" is no exclamation.
        percent: whether it asks for percent.
        remainder: whether it asks for the remainder of a division.
        share: whether it asks for a share, so that "3 out of 10" is 3/10.
        dimensions: of the unit, or of the kind of quantity, that it asks for.
        noun: what is counted or measured: "apple" of "How many apples", "width" of "How wide".
        words: of its last sentence, without small ones.
    """

    known: frozenset[Fraction]
    factorials: bool
    percent: bool
    remainder: bool
    share: bool
    dimensions: frozenset[str]
    noun: str
    words: frozenset[str]

    def asks_for(self, quantity: Quantity, text: str) -> bool:
        """Tell whether a quantity in a text has the unit, or the noun, that the question asks for."""
        if any(unit.dimension in self.dimensions for unit in quantity.units):
            return not self.noun or self._following(quantity, text) in ("", self.noun)
        return bool(self.noun) and self._following(quantity, text) == self.noun

    def asks_for_another(self, quantity: Quantity, text: str) -> bool:
        """Tell whether a quantity in a text has a unit or a noun, and the question asks for something else."""
        named = quantity.units or quantity.percent or self._following(quantity, text)
        return bool(named) and not self.asks_for(quantity, text)

    def _following(self, quantity: Quantity, text: str) -> str:
        """Return the word after a quantity, empty if it is none of those that say what is counted."""
        found = re.match(r"[\s*]*([a-z]+)", text[quantity.end :].lower())
        return "" if not found or found[1] in _SMALL_WORDS else _one(found[1])


@lru_cache(maxsize=4096)
def question_in(prompt: str) -> Question:
    """Return what a prompt says about the answers to it."""
    noun = _NOUN.search(prompt)
    return Question(
        known=numbers_in(prompt),
        factorials="factorial" in prompt.lower() or re.search("[0-9n]!", prompt) is not None,
        percent=asks_for_percent(prompt),
        remainder="remainder" in prompt.lower(),
        share=_SHARE.search(prompt) is not None,
        dimensions=frozenset(unit.dimension for unit in asked_units(prompt)) or asked_dimensions(prompt),
        noun=_one(noun[1].lower()) if noun and noun[1].lower() not in _SMALL_WORDS else "",
        words=words_of(re.split(r"(?<=[.!?])\s+", prompt.strip())[-1]),
    )


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text that say what it is about."""
    return frozenset(map(_one, re.findall("[a-z]{2,}", text.lower()))) - _SMALL_WORDS


def _one(word: str) -> str:
    return _ONE_WORD.get(word, word.rstrip("s"))
