"""numeric: the number that a completion ends with, compared with the reference number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

from typing_extensions import override

from ...base import Problem
from ...plugins.arguments import not_negative
from ...plugins.registry import register_verifier
from ...reading.extraction import BOXED, LAST, STATED, STRICT, extract_rule
from ...reading.numbers.asked import meanings, same, voted
from ...reading.numbers.claims import reader
from ...reading.numbers.plain import LONGEST_NUMBER, read
from ...reading.numbers.quantities import Quantity, normal, numbers_in, quantities
from ...reading.numbers.question import question_in
from ...reading.reference import ReferenceVerifier
from ...reading.statements.stated import boxed_result, stated
from .corpus import EXAMPLES, counterexamples, spellings, written

_LONGEST_LINE = 1_000


@register_verifier("numeric")
class Numeric(ReferenceVerifier):
    """The number that a completion states against the reference number; reward 1.0 within the tolerance, else 0.0.

    What is boxed, follows "####" or is said to be "the answer" counts; else the last conclusion ("The sum of 40 and 3
    is 43.", "12 + 4 = 16", "It comes to $8."); else a number that stands alone. What stands before a conclusion is
    working. Answers that differ ("17 or 18", "The answer is 17. The answer is 18.") score 0, unless one is withdrawn
    ("No, 43."), and so does an equation of numbers that is false. See `builtin/stated.py`.

    A number is 18, -18, 1,234, 18.0, .5, 3/4, 3 1/2, 1.8e1, 1.8 * 10^1, 10^6 (unless the prompt has it so), 25%
    (which is 0.25; 25 where the prompt asks for percent), 1.5 million or eighteen, in ASCII digits, also in LaTeX. A
    comma separates thousands. If the reference has a unit, or the prompt asks for one, another unit scores 0 and the
    same quantity in other words scores (90 km, 90 kilometers, 90,000 m; exact conversions only: `builtin/units.py`).

    A number that is denied ("not 18"), asked about ("18?"), bounded ("at least 18") or part of an expression
    ("half of 18", 18 + x, 18!) is not read. Infinity and nan are not numbers. Numbers are compared exactly, as
    fractions; "about 18" is 18. The reference may end in `#### 18`.

    Prompts and alphabet: those of the listed problems. Not caught: a wrong unit that neither the reference nor the
    prompt tells; denials in other languages; a wrong noun (18 pears for 18 apples).

    Args:
        tolerance: how far the number may be from the reference.
        relative: how far, as a share of the reference; the larger of the two counts.
        inside: judge only the section in this tag, such as "answer", or with "/think" what follows `</think>`.
        extract: what is taken for the answer: "stated" (the default), as above; "strict": the last line, which has to
            give one number or an equation that is true; "last": the last number, whatever stands before it, so that
            "17 or 18" scores where 18 is right; "boxed": what is in `\\boxed{}`. A majority vote uses it too.
    """

    def __init__(
        self,
        tolerance: float = 0,
        relative: float = 0,
        inside: str | None = None,
        extract: str | None = None,
    ) -> None:
        super().__init__(inside)
        self.tolerance = not_negative("numeric", "tolerance", tolerance)
        self.relative = not_negative("numeric", "relative", relative)
        self.rule = extract_rule("numeric", extract)
        if self.rule == BOXED:
            self.does_not_catch = {"part-of-answer": "a number without the unit of the reference counts"}
        if self.rule == LAST:
            self.does_not_catch = dict.fromkeys(("shotgun", "false-equation"), "only the last number counts")

    def examples(self) -> list[Problem]:
        """Return word problems with whole, negative, decimal and large answers."""
        return [Problem(f"{question}\n", answer) for question, answer in EXAMPLES]

    def fault(self, problem: Problem) -> str:
        """Return why the reference answer cannot be compared with."""
        if _reference(problem.answer, self.rule) is not None:
            return ""
        return f"the reference answer ends with no number: {problem.answer[-100:]!r}"

    def matches(self, problem: Problem, text: str) -> bool:
        """Tell whether the completion's number is close enough."""
        given, reference = quantity_in(text, problem.text, self.rule), _reference(problem.answer, self.rule)
        if given is None or reference is None:
            return False
        margin = max(self.tolerance, self.relative * abs(reference.value))
        return any(abs(number - reference.value) <= margin for number in meanings(given, reference, problem.text))

    @override
    def demonstration(self, problem: Problem) -> str:
        reference = _reference(problem.answer, self.rule)
        if self.rule != BOXED or reference is None or "\\boxed" in problem.answer:
            return super().demonstration(problem)
        *above, last = problem.answer.strip().split("\n")
        return self._wrapped("\n".join([*above, f"\\boxed{{{written(reference.value) if above else last}}}"]))

    @override
    def answer_in(self, problem: Problem, text: str) -> str | None:
        given = quantity_in(text, problem.text, self.rule)
        return None if given is None else voted(given, problem.text)

    def spellings(self, problem: Problem) -> list[str]:
        """Return the reference number in sentences, with working above, and in other notations."""
        reference = _reference(problem.answer, self.rule)
        if reference is None or len(str(reference.value)) > LONGEST_NUMBER // 2:
            return []
        return spellings(reference, problem.text, self.rule)

    def counterexamples(self, problem: Problem) -> Mapping[str, Sequence[str]]:
        """Return the reference number denied, doubted, bounded, made another number of, and in another unit."""
        reference = _reference(problem.answer, self.rule)
        if reference is None or not reference.value or len(str(reference.value)) > LONGEST_NUMBER // 2:
            return {}
        return counterexamples(reference, problem.text)


def quantity_in(text: str, prompt: str, rule: str) -> Quantity | None:
    """Return the quantity that a completion gives, None where it gives none or where it is unclear which.

    Args:
        text: the completion.
        prompt: the question, whose numbers and percent decide about "20 is 25% of 80".
        rule: what is taken for the answer; see `Numeric`.
    """

    def alike(one: Quantity, other: Quantity) -> bool:
        return same(one, other, prompt)

    if rule == BOXED:
        return boxed_result(text, reader(prompt), alike)
    if rule == STATED:
        known = numbers_in(prompt)
        return stated(
            text,
            reader(prompt),
            alike,
            lambda result: result.value in known,
            question_in(prompt).is_about,
        )
    return _of_line(text, rule == STRICT)


def _of_line(text: str, strict: bool) -> Quantity | None:
    """Return the quantity of the last line, or the last one of the text."""
    reading = read(text, strict)
    if reading is None:
        return None
    found = quantities(normal(text[-_LONGEST_LINE:]))
    units = next((each.units for each in reversed(found) if each.value == reading.value), ())
    return Quantity(reading.value, units, reading.percent, reading.power, places=reading.places)


@lru_cache(maxsize=4096)
def _reference(answer: str, rule: str) -> Quantity | None:
    """Return the quantity of a reference answer: of its last line, else what it states."""
    return _of_line(answer, rule != LAST) or (quantity_in(answer, "", STATED) if rule in (STATED, BOXED) else None)


def read_number(text: str, strict: bool = True) -> Fraction | None:
    """Return the number that a text gives, None where it gives none or where it is unclear which: see `read`."""
    reading = read(text, strict)
    return None if reading is None else reading.value
