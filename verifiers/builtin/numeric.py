r"""numeric: the number in the answer's place, compared with the reference number."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from typing_extensions import override

from rlenv._checks import check_number

from ..answer import answer_in
from ..base import Problem
from ..numbers import Number, distance, first_number, last_number, leading_number, meant
from ..plugins.registry import register_verifier
from ..problem import examples_beside
from .reference import ReferenceVerifier


@register_verifier("numeric")
class Numeric(ReferenceVerifier):
    r"""The number in the answer's place against the reference number; reward 1.0 within the tolerance, else 0.0.

    docs/verifiers.md says where the answer stands and what a number is: 18, -18, 1,234, 18.0, .5, 3/4, 3 1/2, 1.8e1,
    25%, $18 or 18 km, in ASCII digits, also in LaTeX. Of an operation, "9 * 2 = 18", only the result is read.
    Numbers are compared exactly, as fractions. Where the prompt or the reference says percent, 25% is 25, else 0.25.
    If the reference has a unit, the answer has the same one or none; nothing is converted.

    Prompts and alphabet: from the listed problems. Not caught: what a sentence says about its number ("not 18",
    "18 or 19"); a wrong unit where the reference has none; a wrong noun (18 pears for 18 apples).

    Args:
        tolerance: how far the number may be from the reference.
        relative: how far, as a share of the reference; the larger of the two counts.
        inside: judge only the section in this tag, such as "answer", or with "/think" what follows `</think>`.
        place: where the answer stands: "any", "boxed", "hash", "tag", "stated" or "last".
    """

    examples = examples_beside(__file__)

    def __init__(
        self, tolerance: float = 0, relative: float = 0, inside: str | None = None, place: str = "any"
    ) -> None:
        super().__init__(inside, place)
        self.tolerance = Fraction(str(check_number("numeric: tolerance", tolerance, 0)))  # what its digits mean
        self.relative = Fraction(str(check_number("numeric: relative", relative, 0)))
        if place == "last":
            self.does_not_catch = {"place-repeated": "only the last number counts"}

    def fault(self, problem: Problem) -> str:
        """Return why the reference answer cannot be compared with."""
        return "" if _reference(problem.answer) else f"the reference answer has no number: {problem.answer[-100:]!r}"

    def matches(self, problem: Problem, text: str) -> bool:
        """Tell whether the completion's number is close enough, and in the reference's unit or in none."""
        given, reference = number_in(text, self.place, problem.text), _reference(problem.answer)
        if given is None or reference is None:
            return False
        apart = distance(given, reference, problem.text)
        return apart is not None and apart <= max(self.tolerance, self.relative * abs(reference.value))

    @override
    def answer_in(self, problem: Problem, text: str) -> str | None:
        given, reference = number_in(text, self.place, problem.text), _reference(problem.answer)
        return None if given is None else str(meant(given, reference or given, problem.text))


def number_in(text: str, place: str = "any", prompt: str = "") -> Number | None:
    """Return the number that a text gives as its answer."""
    return answer_in(text, place, first_number, leading_number, last_number, prompt)


_reference = lru_cache(maxsize=4096)(number_in)
