"""What a question says about the answers to it."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from ..statements.phrases import CONCLUDES
from ..statements.stated import Claim, Rank
from .asked import asked_dimensions, asked_units, asks_for_percent
from .quantities import Quantity, normal, numbers_in, quantities
from .units import Unit

_SHARE = re.compile(r"probability|fraction|proportion|likelihood|chance|what (?:part|portion)", re.IGNORECASE)
_NOUN = re.compile(r"\bhow (?:many|much)? ?([a-z]+)", re.IGNORECASE)
_PREDICATE = re.compile(r"\bhow many(?: [a-z]+){0,2}? ([a-z]{2,}ed)\b", re.IGNORECASE)
_COUNTED = re.compile(r"[\s*]*(?P<words>[a-z]+(?:[- ][a-z]+){0,2})", re.IGNORECASE)
_PLURAL = re.compile(
    r"(?!(?:minus|plus|times|less|remains|equals|is|was|this|as|has|does|gives|makes|units|pieces|items|things)\b)"
    r"(?:[a-z]+[^s\W]s|people|children|men|women|feet|teeth|mice|geese)"
)
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
        factorials: whether it speaks of factorials, so that "3!" is 6, not an exclamation.
        percent: whether it asks for percent.
        remainder: whether it asks for the remainder of a division.
        share: whether it asks for a share, so that "3 out of 10" is 3/10.
        dimensions: of the unit, or of the kind of quantity, that it asks for.
        noun: what is counted or measured: "apple" of "How many apples", "width" of "How wide".
        words: of its last sentence, without small ones.
        predicate: what those do that are counted: "passed" of "How many students passed".
        units: the unit that it asks for.
    """

    known: frozenset[Fraction]
    factorials: bool
    percent: bool
    remainder: bool
    share: bool
    dimensions: frozenset[str]
    noun: str
    words: frozenset[str]
    predicate: str
    units: tuple[Unit, ...]

    def asks_for(self, quantity: Quantity, text: str) -> bool:
        """Tell whether a quantity in a text has the unit, or the noun, that the question asks for."""
        does = self._does(quantity, text)
        if does:
            return does == self.predicate
        if any(unit.dimension in self.dimensions for unit in quantity.units):
            return not self.noun or self._following(quantity, text) in ("", self.noun)
        return bool(self.noun) and self._following(quantity, text) == self.noun

    def asks_for_another(self, quantity: Quantity, text: str) -> bool:
        """Tell whether a quantity in a text has a unit or a noun, and the question asks for something else."""
        named = quantity.units or quantity.percent or self._following(quantity, text)
        return bool(named) and not self.asks_for(quantity, text)

    def is_about(self, claim: Claim) -> bool | None:
        """Tell whether a claim counts what the question asks for; False if it counts something else only.

        None if it does not say what it counts, and for what is calculated or said to be the answer.
        """
        if not self.noun or claim.rank == Rank.ANSWER or claim.verb == "=" or CONCLUDES.search(claim.before):
            return None
        text = normal(claim.text)
        counted = [self._counted(each, text) for each in quantities(text)]
        if any(self.noun in words for words in counted):
            return True
        return False if counted and all(words and _PLURAL.fullmatch(words[-1]) for words in counted) else None

    def is_undone(self, quantity: Quantity, text: str) -> bool:
        """Tell whether a quantity is of those that do something else: "12 failed", for "How many students passed"."""
        return self._does(quantity, text) not in ("", self.predicate)

    def _does(self, quantity: Quantity, text: str) -> str:
        """Return what those do that are counted, if the question names it: "failed" of "12 students failed"."""
        found = re.match(rf"[\s*]*(?:{self.noun}s?[\s*]+)?([a-z]+ed)\b", text[quantity.end :].lower())
        return found[1] if self.predicate and found and found[1] in self.words else ""

    def _counted(self, quantity: Quantity, text: str) -> list[str]:
        """Return the words after a quantity up to a plural, and the noun of the question where they end in it."""
        found = _COUNTED.match(text, quantity.end)
        words: list[str] = []
        for word in re.split("[- ]", found["words"].lower()) if found and not quantity.units else []:
            if word in _SMALL_WORDS:
                break
            words.append(word)
            if _one(word) == self.noun:
                return [*words, self.noun]
            if _PLURAL.fullmatch(word):
                break
        return words

    def _following(self, quantity: Quantity, text: str) -> str:
        """Return the word after a quantity, empty if it is none of those that say what is counted."""
        found = re.match(r"[\s*]*([a-z]+)", text[quantity.end :].lower())
        return "" if not found or found[1] in _SMALL_WORDS else _one(found[1])


@lru_cache(maxsize=4096)
def question_in(prompt: str) -> Question:
    """Return what a prompt says about the answers to it."""
    noun, predicate = _NOUN.search(prompt), _PREDICATE.search(prompt)
    return Question(
        known=numbers_in(prompt),
        factorials="factorial" in prompt.lower() or re.search("[0-9n]!", prompt) is not None,
        percent=asks_for_percent(prompt),
        remainder="remainder" in prompt.lower(),
        share=_SHARE.search(prompt) is not None,
        dimensions=frozenset(unit.dimension for unit in asked_units(prompt)) or asked_dimensions(prompt),
        noun=_one(noun[1].lower()) if noun and noun[1].lower() not in _SMALL_WORDS else "",
        words=words_of(re.split(r"(?<=[.!?])\s+", prompt.strip())[-1]),
        predicate=predicate[1].lower() if predicate else "",
        units=asked_units(prompt),
    )


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text that say what it is about."""
    return frozenset(map(_one, re.findall("[a-z]{2,}", text.lower()))) - _SMALL_WORDS


def _one(word: str) -> str:
    return _ONE_WORD.get(word, word.rstrip("s"))
