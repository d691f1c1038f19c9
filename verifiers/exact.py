"""exact: the completion is the reference answer, up to the differences that one chooses to forgive."""

from __future__ import annotations

import unicodedata

from .arguments import flag, one_of
from .base import Problem
from .reference import ReferenceVerifier
from .registry import register_verifier
from .text import WHITESPACE, collapsed, normal_form

_FORMS = ("NFC", "NFKC", "none")
_GROWTH, _ROOM = 18, 1000  # one character has at most 18 in a compatibility form; room for what is forgiven


@register_verifier("exact")
class Exact(ReferenceVerifier):
    """The whole completion against the whole answer; reward 1.0 where they are the same, else 0.0.

    Whitespace around either is dropped, and both are brought into one Unicode form; everything else counts unless an
    option forgives it. Part of the answer, or the answer with something after it, scores 0. An empty answer, or one
    of which the options leave nothing, is the verdict "error".

    Prompts and alphabet: those of the problems, which come from elsewhere. Nothing wrong is known to be paid for
    beyond what the options forgive: with NFKC, ４６ is 46 and x² is x2.

    Args:
        ignore_case: forgive upper and lower case.
        collapse_whitespace: forgive how much whitespace there is between words.
        ignore_punctuation: forgive every punctuation character, inside words too.
        unicode: NFC (é is one thing however it is stored), NFKC (also ﬁ and fi), or none.
        inside: the tag whose section is judged instead of the whole completion, such as "answer".

    Raises:
        ValueError: for a value that an option does not take.
    """

    def __init__(
        self,
        ignore_case: bool = False,
        collapse_whitespace: bool = False,
        ignore_punctuation: bool = False,
        unicode: str = "NFC",
        inside: str | None = None,
    ) -> None:
        super().__init__(inside)
        self.ignore_case = flag("exact", "ignore_case", ignore_case)
        self.collapse_whitespace = flag("exact", "collapse_whitespace", collapse_whitespace)
        self.ignore_punctuation = flag("exact", "ignore_punctuation", ignore_punctuation)
        self.unicode = one_of("exact", "unicode", unicode, _FORMS)
        if unicode == "NFKC":
            self.does_not_catch = {"non-latin-digits": "full-width digits are digits in NFKC"}

    def examples(self) -> list[Problem]:
        """Return questions with answers of one spelling."""
        return [Problem(f"{question}\n", answer) for question, answer in _EXAMPLES]

    def fault(self, problem: Problem) -> str:
        """Return why there is nothing to compare with."""
        return "" if self._normal(problem.answer) else "the problem has no reference answer, or the options leave none"

    def matches(self, problem: Problem, text: str) -> bool:
        """Tell whether both are the same once normalised."""
        if text == problem.answer:
            return True
        text = text.strip(WHITESPACE)
        return len(text) <= _GROWTH * len(problem.answer) + _ROOM and self._normal(text) == self._normal(problem.answer)

    def spellings(self, problem: Problem) -> list[str]:
        """Return the answer with what the options forgive."""
        answer = problem.answer
        texts = [
            f" {answer}",
            f"{answer}\n",
            unicodedata.normalize("NFD", answer) if self.unicode != "none" else answer,
        ]
        texts += [answer.upper()] * self.ignore_case + [answer.replace(" ", "  ")] * self.collapse_whitespace
        return texts + [f"{answer}."] * self.ignore_punctuation

    def _normal(self, text: str) -> str | None:
        normal: str | None = collapsed(text) if self.collapse_whitespace else text.strip(WHITESPACE)
        if self.unicode != "none":
            normal = normal_form(normal or "", self.unicode)
        if normal and self.ignore_case:
            normal = normal.casefold()
        if normal and self.ignore_punctuation:
            normal = "".join(c for c in normal if not unicodedata.category(c).startswith("P")).strip(WHITESPACE)
        return normal


_EXAMPLES = [
    ("Which metal is liquid at room temperature?", "mercury"),
    ("What is the capital of Peru?", "Lima"),
    ("Spell the French word for good morning.", "bonjour"),
    ("Reverse the word stressed.", "desserts"),
    ("Write the first five prime numbers with commas.", "2,3,5,7,11"),
    ("Which planet has the largest rings?", "Saturn"),
    ("Write 255 in hexadecimal, in capitals.", "FF"),
    ("Who wrote Frankenstein?", "Mary Shelley"),
    ("What is the chemical symbol of gold?", "Au"),
    ("Sort the letters of the word banana.", "aaabnn"),
]
