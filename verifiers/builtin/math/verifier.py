"""math: a mathematical answer against the reference, by symbolic comparison (math-verify)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

from typing_extensions import override

from ...base import Problem
from ...plugins.extras import require
from ...plugins.registry import register_verifier
from ...reading.extraction import STRICT, extract_rule
from ...reading.numbers.asked import meanings, voted
from ...reading.numbers.quantities import Quantity, numbers_in
from ...reading.quiet import quiet
from ...reading.reference import ReferenceVerifier
from .answers import Answer, name_of, sides
from .corpus import EXAMPLES, RIGHT, RIGHT_NUMBERS, WRONG, WRONG_NUMBERS
from .equal import PLACES, equal, is_too_short
from .given import Reference, given, number_or_formula, reference_of, repeats, voted_formula


@register_verifier("math")
class Math(ReferenceVerifier):
    r"""The answer that a completion states against the reference, as mathematics; reward 1.0 if equal, else 0.0.

    What counts is what is boxed or said to be "the answer", else the last conclusion ("so x = 3", "the area is 9π"),
    else a formula that stands alone; two that differ score 0. See `builtin/stated.py`. Formulas may be LaTeX, Unicode
    (9π, √3, x², ½, (-∞, 2), 60°) or plain text (sqrt(3)/2, x^2, 1/2); letters side by side are a product where the
    reference has them (xy, mv^2), else a word.

    1/2, 0.5 and \frac{1}{2} are equal; so are x^2-1 and (x-1)(x+1), sets and solutions in any order (x = ±2, 2 and -2),
    x < 2 and (-∞, 2), x = 3, y = 2 and the pair (3, 2). Other pairs, intervals and matrices need the brackets and the
    order of the reference. A decimal of 6 places or more may be rounded, if correctly: 0.333333 is 1/3, 0.5000004 is
    not 1/2; after = or ≈ to the exact value, fewer do. In a chain each side that can be compared has to be equal:
    18+28=46, f(x)=x^2-1, 3\sqrt{2}\approx 4.24. Where the reference is a number, percent and units are read as by
    `numeric`; a unit that is not the reference's scores 0. 2*23 is not 46, nor is 10^7 10000000 if the prompt has it.

    A reference may be a number, a formula, a list, "x = 3, y = 4", an equation, an inequality, or words in `\text{}`.
    One that cannot be read is the verdict "error". Prompts and alphabet: those of the listed problems. The parser can
    take very long (10^10^10^10) or crash, so verdicts are reached in worker processes; nothing in a completion is
    evaluated as Python. A formula that only repeats one of the question scores 0 (6/8 for "Simplify 6/8."), and so does
    one with an integral, derivative, limit, sum or product to be done where the reference has none. What it does not
    catch: one that restates it in another form where the reference is an expression, too; capital letters for small
    ones; denials in other languages.

    Args:
        inside: judge only the section in this tag, such as "answer", or with "/think" what follows `</think>`.
        extract: what is taken for the answer: "stated" (the default), as above; "strict": the last line, which has to
            be one formula, or one in a box, in dollars or after words such as "The answer is"; "last": the last
            formula; "boxed": what is in `\boxed{}`. A majority vote uses it too.

    Raises:
        ValueError: if math-verify is not installed, `inside` is not the name of a tag, or for another `extract`.
    """

    isolated = True
    needs = {"math_verify": "math"}

    def __init__(self, inside: str | None = None, extract: str | None = None) -> None:
        super().__init__(inside)
        self.rule = extract_rule("math", extract)
        require("math_verify", "math", "verifier 'math'")

    def examples(self) -> list[Problem]:
        """Return problems whose answers are numbers, expressions, sets, tuples and intervals."""
        return [Problem(f"{question}\n", answer, {"equal": equal}) for question, answer, *equal in EXAMPLES]

    def fault(self, problem: Problem) -> str:
        """Return why there is nothing to compare with."""
        if _reference(problem.answer):
            return ""
        return f"the reference answer cannot be read: {problem.answer[-100:]!r}"

    @quiet()
    def matches(self, problem: Problem, text: str) -> bool:
        """Tell whether the completion's answer equals the reference."""
        reference = _reference(problem.answer)
        if reference is None:
            return False
        found = self._given(problem, text, reference)
        if isinstance(found, Answer):
            right = equal(found, reference.answer, lenient=self.rule != STRICT)
            return right and not repeats(found, reference, problem.text)
        return found is not None and self._number_is_right(problem, text, found, reference)

    def _number_is_right(self, problem: Problem, text: str, found: Quantity, reference: Reference) -> bool:
        """Tell whether a number is the reference; a rounded one is right where it stands beside the exact value."""
        wanted, places = reference.quantity, 0 if is_too_short(found) else found.places
        if wanted is None:
            return False
        if found.places and re.search(r"/|frac", reference.formula) and found.value in numbers_in(problem.text):
            return False  # "Write 0.5 as a fraction."
        values = meanings(found, wanted, problem.text)
        right = any(_is(value, places, wanted.value) for value in values)
        if not right and not any(_is_rounded(value, found.places, wanted.value) for value in values):
            return False
        formula = given(text, self.rule, reference.letters, False, problem.text)
        if right:
            return formula is None or not (
                _is_false(formula, reference.answer) or repeats(formula, reference, problem.text)
            )
        return formula is not None and equal(formula, reference.answer, lenient=self.rule != STRICT)

    @override
    def answer_in(self, problem: Problem, text: str) -> str | None:
        """Return the number as a fraction, or the formula without spaces: x+1 and 1+x are two answers here."""
        found = self._given(problem, text, _reference(problem.answer))
        return voted(found, problem.text) if isinstance(found, Quantity) else found and voted_formula(found)

    def _given(self, problem: Problem, text: str, reference: Reference | None) -> Quantity | Answer | None:
        """Return what a completion answers with, by the rule of this verifier."""
        letters, words = (reference.letters, reference.answer.words) if reference else (frozenset(), "")
        if reference and reference.quantity is None:
            return given(text, self.rule, letters, bool(words), problem.text)
        return number_or_formula(text, problem.text, self.rule, letters, bool(words))

    def spellings(self, problem: Problem) -> list[str]:
        """Return the answer boxed, between dollars, in a sentence, below some working, and what equals it."""
        answer, plain = _written(problem)
        texts = [form.format(answer) for form in (*RIGHT, *(RIGHT_NUMBERS if plain else ()))]
        if plain and plain.value.denominator == 1 and not plain.percent:
            texts += [
                f"{plain.value - 9}+9={plain.value}",
                f"${2 * plain.value}/2 = {plain.value}$",
                f"{plain.value}e0",
            ]
        return texts + [f"${equal}$" for equal in problem.metadata.get("equal", ())]

    def counterexamples(self, problem: Problem) -> Mapping[str, Sequence[str]]:
        """Return the answer denied, changed, in a wrong equation, and nearly equal."""
        answer, plain = _written(problem)
        families = {family: [form.format(answer) for form in forms] for family, forms in WRONG.items()}
        if plain and plain.value and not plain.percent:
            forms = WRONG_NUMBERS if plain.value.denominator == 1 else WRONG_NUMBERS[2:]
            families["number-changed"] = [form.format(answer) for form in forms]
            near = [f"{float(plain.value) + 4e-7:.7f}", f"{float(plain.value) - 3e-8:.8f}"]
            families["nearly-equal"] = [form.format(each) for each in near for form in ("{}", "$x={}$")]
        return families


def _is_false(formula: Answer, reference: Answer) -> bool:
    """Tell whether the right number stands in a list, or at the end of an equation that is false: 17 = 46."""
    if len(formula.parts) != 1:
        return not all(map(name_of, formula.parts))
    last = sides(formula.parts[0])[0][-1]
    alone = formula._replace(parts=(last,))
    return last != formula.parts[0] and equal(alone, reference, lenient=True) and not equal(formula, reference, True)


def _is(value: Fraction, places: int, reference: Fraction) -> bool:
    """Tell whether a number is the reference, or the reference rounded correctly to 6 places or more."""
    return value == reference or (places >= PLACES and 2 * abs(value - reference) <= Fraction(1, 10**places))


def _is_rounded(value: Fraction, places: int, reference: Fraction) -> bool:
    """Tell whether a number is the reference rounded, such as the 0.17 of 1/6 = 0.17."""
    return places > 0 and 2 * abs(value - reference) <= Fraction(1, 10**places)


def _written(problem: Problem) -> tuple[str, Quantity | None]:
    """Return a reference as a formula, and as a number if it is one."""
    reference = _reference(problem.answer)
    return (reference.formula, reference.quantity) if reference else ("", None)


_reference = lru_cache(maxsize=4096)(reference_of)
