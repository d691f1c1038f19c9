"""exact: the completion equals the reference answer, up to chosen differences."""

from __future__ import annotations

import re
import unicodedata

from typing_extensions import override

from rlenv._checks import check_choice, check_flag

from ..base import Problem
from ..plugins.registry import register_verifier
from ..problem import examples_beside
from ..text import WHITESPACE, collapsed, normal_form
from .reference import ReferenceVerifier

_FORMS = ("NFC", "NFKC", "none")
_NOT_FORGIVEN = re.compile(  # punctuation that is part of a number
    r"(?<=\d)\s*[^\w\s]+\s*(?=\d)"  # 3.14, 1,234, 10:30, 2 * 3
    r"|(?<![\w.])\.(?=\d)"  # .5
    r"|(?<!\w)[-\u2010-\u2015](?=[^\w]{0,8}\d)"  # -5, -$5, -(5)
    r"|(?<=\d)(?:\s?[%\u2030\u066a]|!)"  # 5 %, 5!
)
_GROWTH, _ROOM = 18, 1000  # one character has at most 18 in a compatibility form; room for what is forgiven


@register_verifier("exact")
class Exact(ReferenceVerifier):
    """The whole completion against the whole answer; reward 1.0 if they are equal, else 0.0.

    Whitespace around either is dropped, and both are brought into one Unicode form; everything else counts unless an
    option forgives it. Part of the answer, or the answer with something after it, scores 0. An empty answer, or one
    of which the options leave nothing, is the verdict "error".

    Prompts and alphabet: from the listed problems. Nothing wrong is known to be paid for
    beyond what the options forgive: with NFKC, ４６ is 46 and x² is x2.

    Args:
        ignore_case: forgive upper and lower case.
        collapse_whitespace: forgive how much whitespace there is between words.
        ignore_punctuation: forgive every punctuation character, inside words too, but not in numbers: a sign, a percent
            sign or an exclamation mark at a number and everything between two digits count, so that 5 is neither -5
            nor 5%, and 314 is not 3.14; and 1,234 is not 1234.
        unicode: NFC (é is one thing however it is stored), NFKC (also ﬁ and fi), or none.
        inside: judge only the section in this tag, such as "answer", or with "/think" what follows `</think>`.
    """

    examples = examples_beside(__file__)

    def __init__(
        self,
        ignore_case: bool = False,
        collapse_whitespace: bool = False,
        ignore_punctuation: bool = False,
        unicode: str = "NFC",
        inside: str | None = None,
    ) -> None:
        super().__init__(inside)
        self.ignore_case = check_flag("exact: ignore_case", ignore_case)
        self.collapse_whitespace = check_flag("exact: collapse_whitespace", collapse_whitespace)
        self.ignore_punctuation = check_flag("exact: ignore_punctuation", ignore_punctuation)
        self.unicode = check_choice("unicode of exact", unicode, _FORMS)
        if unicode == "NFKC":
            self.does_not_catch = {"look-alike": "full-width digits are digits in NFKC"}

    def fault(self, problem: Problem) -> str:
        """Return why there is nothing to compare with."""
        return "" if self._normal(problem.answer) else "the problem has no reference answer, or the options leave none"

    def matches(self, problem: Problem, text: str) -> bool:
        """Tell whether both are the same once normalised."""
        if text == problem.answer:
            return True
        text = text.strip(WHITESPACE)
        return len(text) <= _GROWTH * len(problem.answer) + _ROOM and self._normal(text) == self._normal(problem.answer)

    @override
    def answer_in(self, problem: Problem, text: str) -> str | None:
        return self._normal(text) or None

    def _normal(self, text: str) -> str | None:
        normal: str | None = collapsed(text) if self.collapse_whitespace else text.strip(WHITESPACE)
        if self.unicode != "none":
            normal = normal_form(normal or "", self.unicode)
        if normal and self.ignore_case:
            normal = normal.casefold()
        if normal and self.ignore_punctuation:
            normal = _without_punctuation(normal)
        return normal


def _without_punctuation(text: str) -> str:
    counts = {place for found in _NOT_FORGIVEN.finditer(text) for place in range(*found.span())}
    kept = (c for place, c in enumerate(text) if place in counts or not unicodedata.category(c).startswith("P"))
    return "".join(kept).strip(WHITESPACE)
