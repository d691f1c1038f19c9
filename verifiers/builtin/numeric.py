"""numeric: the number that a completion ends with, compared with the reference number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

from typing_extensions import override

from ..arguments import flag, not_negative
from ..base import Problem
from ..registry import register_verifier
from .plain_numbers import LONGEST_NUMBER, meanings, read
from .reference import ReferenceVerifier


@register_verifier("numeric")
class Numeric(ReferenceVerifier):
    """The number in the last line against the reference number; reward 1.0 within the tolerance, else 0.0.

    The last line that is not blank has to give one number: "The answer is 18.", "$18", "18 km" and "9 * 2 = 18" (where
    the sides are equal) score, "17 or 18" and "9 * 3 = 18" do not. What stands in the lines above is working and not
    read. The reference is read by the same rule, so an answer may end in `#### 18`.

    A number is 18, -18, +18, 1,234, 18.0, .5, 3/4, 3 1/2, 1.8e1, 1.8 * 10^1, 10^6 (unless the prompt has it so) or 25%
    (which is 0.25, or 25 where the prompt asks "what percent"), in ASCII digits, also in LaTeX; "minus 18" is -18. A
    comma separates thousands: 0,018 is unclear. Signs of currency, punctuation, quotes, `*`, `$`, `\\(` and `\\boxed{}`
    may stand around it, and words and a unit beside it: 18 km is 18, but not where the reference says 18 m.

    Unclear, which scores 0, is a number that English words deny ("not 18", "18 is wrong"), ask about ("18?"), bound
    ("at least 18") or change ("half of 18", "18 thousand"), one with an operator next to it (18!, !=18, 18 + x), and a
    word with a digit of any script that cannot be read as a number (x2, 18th, 1e9999, ４６, more than 100
    characters). Infinity and nan are not numbers. Numbers are compared exactly, as fractions; "about 18" is 18.

    Prompts and alphabet: those of the listed problems. Not caught: a wrong unit where
    the reference has none; denials in other languages, and those that do not stand in the same sentence or after it;
    the working is not read, so numbers one a line score if the last one is right.

    Args:
        tolerance: how far the number may be from the reference.
        relative: how far, as a share of the reference; the larger of the two counts.
        strict: without it the last number of the completion counts, whatever other numbers stand before it, and
            "17 or 18" scores where 18 is right.
        inside: judge only the section in this tag, such as "answer", or with "/think" what follows `</think>`.
    """

    def __init__(
        self, tolerance: float = 0, relative: float = 0, strict: bool = True, inside: str | None = None
    ) -> None:
        super().__init__(inside)
        self.tolerance = not_negative("numeric", "tolerance", tolerance)
        self.relative = not_negative("numeric", "relative", relative)
        self.strict = flag("numeric", "strict", strict)
        if not strict:
            self.does_not_catch = dict.fromkeys(("shotgun-last", "false-equation"), "only the last number counts")

    def examples(self) -> list[Problem]:
        """Return word problems with whole, negative, decimal and large answers."""
        return [Problem(f"{question}\n", answer) for question, answer in _EXAMPLES]

    def fault(self, problem: Problem) -> str:
        """Return why the reference answer cannot be compared with."""
        if _read(problem.answer, self.strict) is not None:
            return ""
        return f"the reference answer ends with no number: {problem.answer[-100:]!r}"

    def matches(self, problem: Problem, text: str) -> bool:
        """Tell whether the completion's number is close enough."""
        given, reference = read(text, self.strict), _read(problem.answer, self.strict)
        if given is None or reference is None:
            return False
        margin = max(self.tolerance, self.relative * abs(reference.value))
        return any(abs(number - reference.value) <= margin for number in meanings(given, reference, problem.text))

    @override
    def answer_in(self, problem: Problem, text: str) -> str | None:
        given = read(text, self.strict)
        return None if given is None else str(given.value)

    def spellings(self, problem: Problem) -> list[str]:
        """Return the reference number in sentences, with working above, and in other notations."""
        reading = _read(problem.answer, self.strict)
        if reading is None or len(str(reading.value)) > LONGEST_NUMBER // 2:
            return []
        number, written = reading.value, _written(reading.value)
        texts = [frame.format(written) for frame in _FRAMES]
        texts += [f"x={number.numerator}/{number.denominator}", f"\\frac{{{number.numerator}}}{{{number.denominator}}}"]
        texts += [f"{_written(100 * number)}{percent}" for percent in ("%", " %", "\\%", " percent")]
        if number < 0:
            texts += [f"minus {_written(-number)}", f"It is negative {_written(-number)}.", f"−{_written(-number)}"]
        elif number:
            texts += [f"+{written}", f"So it comes to ${written}."]
        if "/" not in written:
            texts += [f"{written}e0", f"{written} × 10^0", f"${written} \\times 10^{{0}}$"]
        if number.denominator == 1:
            grouped = f"{number.numerator:,}"
            texts += [f"{number}.0", f"{number}.00"]
            texts += [grouped.replace(",", comma) for comma in (",", "{,}", "\\,", "\N{NARROW NO-BREAK SPACE}")]
        if number.denominator == 1 and 0 < number < 10**8:
            texts += [f"{number + 3} - 3 = {number}", f"The total is {number} * 2 / 2 = {number} coins."]
        return texts

    def counterexamples(self, problem: Problem) -> Mapping[str, Sequence[str]]:
        """Return the reference number denied, doubted, bounded and made another number of."""
        reading = _read(problem.answer, self.strict)
        if reading is None or not reading.value or len(str(reading.value)) > LONGEST_NUMBER // 2:
            return {}
        written = _written(reading.value)
        families = {family: [form.format(written) for form in forms] for family, forms in _WRONG.items()}
        size = _written(abs(reading.value))
        families["sign-in-words"] = [form.format(size) for form in _OTHER_SIGN[reading.value > 0]]
        if reading.value.denominator == 1 and 0 < reading.value < 1000:
            families["decimal-comma"] = [f"0,{written:0>3}", f"{written},0"]
        return families


def _written(number: Fraction) -> str:
    """Return a number as a whole number or a decimal if it is one, else as a fraction."""
    places = next((n for n in range(13) if 10**n % number.denominator == 0), None)
    if places is None:
        return str(number)
    digits = str(abs(number) * 10**places).zfill(places + 1)
    return ("-" if number < 0 else "") + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)


def read_number(text: str, strict: bool = True) -> Fraction | None:
    """Return the number that a text gives, None where it gives none or where it is unclear which: see `read`."""
    reading = read(text, strict)
    return None if reading is None else reading.value


_read = lru_cache(maxsize=4096)(read)


_FRAMES = [
    "The answer is {}.", "**{}**", "$\\boxed{{{}}}$", "\\({}\\)", "\\[{}\\]", "$${}$$", "First 3, then 4.\n\n{}\n",
    "{}\N{NO-BREAK SPACE}", "Answer:\N{NO-BREAK SPACE}{}", "#### {}", "Answer: **{}**", "**Answer:** {}", "`{}`",
    "({})", "= {}", "x = {}", "{} = x", "{},", "{} apples", "{}\\text{{ apples}}",
    "{} in total", "No, {}.", "I get {}, all in all.",
    "Therefore, there are {} of them!", "$\\mathbf{{{}}}$", "So the final answer is $\\boxed{{{}}}$.", "it is about {}",
    "Not 17: that was wrong.\nIt is {}.", "It does not matter why. The result is {}.", "-> {}",
]  # fmt: skip
_WRONG = {
    "denial": [
        "not {}", "It isn't {}.", "It isn’t {}", "no answer: {}", "{} is wrong", "{} is not the answer", "never {}",
        "anything other than {}", "neither {} nor this", "not $\\boxed{{{}}}$", "The answer cannot be\xa0{}",
    ],
    "question": ["{}?", "Is it {}?", "$\\boxed{{{}}}$?"],
    "bound": ["at least {}", "more than {}", "It is less than {}.", "nearly {}", "> {}", "≤ {}", "up to {}"],
    "number-words": ["{} or seventeen", "seventeen or {}", "{} and a half", "half of {}", "twice {}", "one hundred {}"],
    "magnitude": ["{} thousand", "{} million.", "{} dozen", "{}k", "{} M", "{}\\text{{ billion}}", "{} hundredths"],
    "operator": [
        "!={}", "x != {}", "$x \\ne {}$", "≠ {}", "{} + x", "{} - x", "x * {}", "\\sqrt{{{}}}", "x^{{{}}}",
        "{} squared", "{} x", "{}^x", "sqrt {}", "±{}", "|{}| + 1", "{}_8", "f({})", "√{}", "{}\\pi", "{} factorial",
    ],
    "factorial": ["{}!", "({})!", "The answer is {}!", "$\\boxed{{{}!}}$"],
    "false-equation": ["1 + {0} = {0}", "7 = {}", "{0} = 2 * {0} = {0}"],
}  # fmt: skip
_OTHER_SIGN = (["{}", "+{}"], ["minus {}", "It is negative {}.", "-{}", "−{}", "- {}", "-${}", "-\\boxed{{{}}}"])
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
    ("What percent of 50 is 20?", "40"),
    ("How much is 20 of 50, as a share?", "40%"),
    ("How many grams are 2.5 kilograms?", "It is 2,500 g."),
    ("What is 22 divided by 7?", "3 1/7"),
    ("A bill of $40 is split by 5. What does each pay?", "$8"),
    ("How far is it from -3 to -10 on the number line, going down?", "-7"),
]
