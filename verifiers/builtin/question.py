"""What a question says about the answers to it."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from .asked import asked_units, asks_for_percent
from .quantities import Quantity, numbers_in
from .units import Unit

_SHARE = re.compile(r"probability|fraction|proportion|likelihood|chance|what (?:part|portion)", re.IGNORECASE)
_NOUN = re.compile(r"\bhow (?:many|much) ([a-z]+)", re.IGNORECASE)
_SMALL_WORDS = frozenset(
    re.findall(
        "[a-z]+",
        "the an of is are was were it its that this which so therefore thus hence and or in to be would will must has "
        "have had he she they there for at on by with we you his her their one",
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
        units: the unit that it asks for.
        noun: what is counted: "apple" of "How many apples".
        words: its words, without small ones.
    """

    known: frozenset[Fraction]
    factorials: bool
    percent: bool
    remainder: bool
    share: bool
    units: tuple[Unit, ...]
    noun: str
    words: frozenset[str]

    def asks_for(self, quantity: Quantity, text: str) -> bool:
        """Tell whether a quantity in a text has the unit, or the noun, that the question asks for."""
        if any(unit.dimension == each.dimension for unit in quantity.units for each in self.units):
            return True
        following = re.match(r"[\s*]*([a-z]+)", text[quantity.end :].lower())
        return bool(self.noun) and following is not None and following[1].rstrip("s") == self.noun


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
        units=asked_units(prompt),
        noun=noun[1].lower().rstrip("s") if noun else "",
        words=words_of(prompt),
    )


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text that say what it is about."""
    return frozenset(re.findall("[a-z]{2,}", text.lower())) - _SMALL_WORDS
