"""numeric: the number that a completion ends with, compared with the reference number."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from .arguments import flag, not_negative
from .base import Problem
from .reference import ReferenceVerifier
from .registry import register_verifier
from .text import last_line

_LONGEST_PART = 1_000
_LONGEST_NUMBER = 100
_BEFORE = "$€£¥#*_\"'`(["
_AFTER = "$€£¥*_\"'`)].,;!?"
_MINUS = "\N{MINUS SIGN}"
_NUMBER = re.compile(
    r"[-+]?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?|"
    r"[-+]?[0-9]+/0*[1-9][0-9]*"
)


@register_verifier("numeric")
class Numeric(ReferenceVerifier):
    """The number in the last line against the reference number; reward 1.0 within the tolerance, else 0.0.

    The last line that is not blank has to hold one number and no other: "The answer is 18." scores, "17 or 18" and
    "9 * 2 = 18" do not. What stands in the lines above is working and not read. The reference is read by the same
    rule, so an answer may end in `#### 18`.

    A number is 18, -18, +18, 1,234, 18.0, .5, 1.8e1, 3/4 or 25% (which is 0.25), in ASCII digits, with a minus sign
    of either kind; signs of currency, punctuation, quotes and `*` may stand around it, `=`, `:` or a brace next to it.
    Numbers are compared exactly, as fractions. A word with a digit of any script that is no such number (x2, 5km,
    1e9999, ４６, a number of over 100 characters) makes the line unclear, which scores 0. Infinity and nan are no
    numbers.

    Prompts and alphabet: those of the problems, which come from elsewhere. What it does not catch: words around the
    number are not read, "not 18" is 18; neither is the working, so numbers one a line score if the last one is right.

    Args:
        tolerance: how far the number may be from the reference.
        relative: how far, as a share of the reference; the larger of the two counts.
        strict: without it the last number of the completion counts, whatever other numbers stand before it, and
            "17 or 18" scores where 18 is right.
        inside: the tag whose section is judged instead of the whole completion, such as "answer".

    Raises:
        ValueError: for a value that an option does not take.
    """

    does_not_catch = {"negation": "the words around the number are not read"}

    def __init__(
        self, tolerance: float = 0, relative: float = 0, strict: bool = True, inside: str | None = None
    ) -> None:
        super().__init__(inside)
        self.tolerance = not_negative("numeric", "tolerance", tolerance)
        self.relative = not_negative("numeric", "relative", relative)
        self.strict = flag("numeric", "strict", strict)
        if not strict:
            self.does_not_catch = {**self.does_not_catch, "shotgun-last": "only the last number counts"}

    def examples(self) -> list[Problem]:
        """Return word problems with whole, negative, decimal and large answers."""
        return [Problem(f"{question}\n", answer) for question, answer in _EXAMPLES]

    def fault(self, problem: Problem) -> str:
        """Return why there is no number to compare with."""
        if _read(problem.answer, self.strict) is not None:
            return ""
        return f"the reference answer ends with no number: {problem.answer[-100:]!r}"

    def matches(self, problem: Problem, text: str) -> bool:
        """Tell whether the completion's number is close enough."""
        number, reference = read_number(text, self.strict), _read(problem.answer, self.strict)
        if number is None or reference is None:
            return False
        return abs(number - reference) <= max(self.tolerance, self.relative * abs(reference))

    def spellings(self, problem: Problem) -> list[str]:
        """Return the reference number in sentences, with working above, and in other notations."""
        number = _read(problem.answer, self.strict)
        if number is None or len(str(number)) > _LONGEST_NUMBER // 2:
            return []
        plain = last_line(problem.answer)[0].split()[-1]
        texts = [f"The answer is {plain}.", f"**{plain}**", f"$\\boxed{{{plain}}}$", f"First 3, then 4.\n\n{plain}\n"]
        texts += [f"x={number.numerator}/{number.denominator}", f"Answer: {number * 100}%"]
        if number.denominator == 1:
            texts += [f"{number.numerator:,}", f"{number.numerator}.0", f"{number.numerator}e0"]
        return texts


def read_number(text: str, strict: bool = True) -> Fraction | None:
    """Return the number that a text ends with, None where there is none or where it is unclear which.

    Args:
        text: any text.
        strict: whether the number has to be the only one in the last line; else it is the last one of the text.
    """
    part = last_line(text)[0] if strict else text
    if len(part) > _LONGEST_PART:
        if strict:
            return None
        part = re.split(r"[ \t\r\n]", part[-_LONGEST_PART:], maxsplit=1)[-1]  # the first word may be half a word
    found = _words_with_digits(part)
    return _value(found[-1]) if found and (len(found) == 1 or not strict) else None


_read = lru_cache(maxsize=4096)(read_number)


def _words_with_digits(text: str) -> list[str]:
    """Return the words that have a digit; a sign that stands alone belongs to the next one, which is no number then."""
    words = re.split(r"[ \t\r\n=:{}]+", text.replace(_MINUS, "-"))
    found = []
    for before, word in zip(["", *words], words, strict=False):
        if any(character.isnumeric() and not character.isalpha() for character in word):
            bare = word.lstrip(_BEFORE).rstrip(_AFTER)
            found.append(f"{before} {bare}" if before in ("-", "+") else bare)
    return found


def _value(word: str) -> Fraction | None:
    bare = word.removesuffix("%")
    if len(word) > _LONGEST_NUMBER or not _NUMBER.fullmatch(bare):
        return None
    return Fraction(bare.replace(",", "")) / (1 if bare == word else 100)


_EXAMPLES = [
    ("A pen costs 3 coins. What do 6 pens cost?", "18"),
    ("It is 4 degrees and gets 9 degrees colder. How cold is it then?", "-5"),
    ("What is 7 divided by 2, as a decimal?", "3.5"),
    ("What is 1 divided by 3, as a fraction?", "1/3"),
    ("A train has 12 cars with 84 seats each. How many seats are there?", "12 * 84 seats.\n1008"),
    ("What is 10 to the power of 6?", "1000000"),
    ("What is 5 minus 5?", "0"),
    ("Half of 0.25 is what?", "0.125"),
    ("A box holds 24 eggs, 5 are broken. How many are whole?", "24 - 5 is what is left.\n#### 19"),
    ("What is 30 percent of 50, times 0.1?", "1.5"),
]
