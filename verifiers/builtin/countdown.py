"""countdown: numbers and a target, as in "3 5 7=26:" -> "3*7+5"."""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from typing_extensions import override

from rlenv._checks import check_count, check_flag

from ..answer import answer_in, ending, placed
from ..base import Problem
from ..dialogues.calculator import OPERATORS, calculate
from ..numbers import plain
from ..plugins.registry import register_verifier
from .reference import ReferenceVerifier

LONGEST = 200  # characters
_ARITHMETIC = re.compile(r"(?:[-+*/() ]|(?<![0-9])(?:0|[1-9][0-9]{0,8})(?![0-9]))*+")
_KINDS: tuple[type, ...] = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_ALLOWED = {kind: OPERATORS[kind] for kind in _KINDS}
_OPERATORS = "+-*/"
_FRACTION = re.compile(r"\\[cdt]?frac ?\{([^{}]*)\} ?\{([^{}]*)\}")
_LATEX = re.compile(r"\\(?:left|right)(?![a-z])|\$")
_SIGNS = str.maketrans("×÷xX[]", "*/**()")
_RESULT = re.compile(r"[\s:]*[0-9]+ ?=")
_WHOLE = re.compile(r"[\s:]*([0-9(\[][-+*/×÷xX()\[\] 0-9]*+)(?:$|=|[.!](?:\s|$))")


@register_verifier("countdown")
class Countdown(ReferenceVerifier):
    r"""Reach the target with the given numbers; reward 1.0 for an expression that does, else 0.0.

    Prompt: the numbers, `=`, the target, `:`, as in `3 5 7=26:`. Answer: an expression of the given numbers, each used
    at most once, two or more, with `+ - * /` and parentheses, such as `3*7+5`; fractions on the way are exact. It may
    be written as `3 \times 7 + 5 = 26`, whose "=" and what follows are cut off, or `26 = 3*7+5`; after "is" or "=" in a
    sentence it counts only if it has two or more of the given numbers. Every problem has a solution, and the target is
    not among its numbers.
    `metadata` holds "numbers" and "target"; listed problems need both, with any prompt. In the rows of
    Jiayi-Pan/Countdown-Tasks-3to4, `numbers` are the column `nums`. 3 5 7=26 and 7 3 5=26 are in the same split.

    Alphabet: digits, space, `=`, `:`, the chosen operators, and parentheses if `*` or `/` is among them. Answers may
    use any operator, and spaces between numbers and operators. No known holes.

    Args:
        numbers: numbers per problem, 2 to 6; with several levels, of the highest.
        largest: the largest number, 4 to 999; the target is at most ten times that.
        operators: used in the solutions, drawn uniformly: `+`, and any of `-`, `*`, `/`.
        levels: number of difficulty levels, 1 to `numbers` - 1, drawn uniformly: the highest has `numbers` numbers,
            each lower level one less.
        place: where the expression stands; see docs/verifiers.md.
        use_all: whether an answer has to use every number, as the tasks of TinyZero ask for.
    """

    columns = ("numbers", "target")

    def __init__(
        self,
        numbers: int = 3,
        largest: int = 9,
        operators: str = "+-*",
        levels: int = 1,
        place: str = "any",
        use_all: bool = False,
    ) -> None:
        super().__init__(place=place)
        self.request = self.request.replace("the answer", "the expression")
        self.use_all = check_flag("countdown: use_all", use_all)
        self.numbers = check_count("countdown: numbers", numbers, 2, 6)
        self.largest = check_count("countdown: largest", largest, 4, 999)
        self.levels = check_count("countdown: levels", levels, 1, numbers - 1)
        if not isinstance(operators, str) or set(operators) - set(_OPERATORS) or "+" not in operators:
            raise ValueError(f"countdown: operators must be '+' with or without some of '-*/', got {operators!r}")
        self.operators = "".join(dict.fromkeys(operators))
        nested = bool(set(operators) & set("*/"))
        form = placed("", place)
        self.alphabet = "".join(dict.fromkeys("0123456789 =:" + self.operators + "()" * nested + form))
        width = len(str(largest))
        self.prompt_length = numbers * (width + 1) + width + 2
        self.answer_length = numbers * (width + 1) - 1 + 2 * nested * (numbers - 2) + len(form)

    @override
    def sample_at(self, rng: random.Random, level: int) -> Problem:
        count = self.numbers - self.levels + level
        while (solved := self._solution(rng, count)) is None:
            pass
        numbers, target, expression = solved
        rng.shuffle(numbers)
        metadata: dict[str, Any] = {"numbers": numbers, "target": target}
        if self.levels > 1:
            metadata["level"] = level
        return Problem(f"{' '.join(map(str, numbers))}={target}:", expression, metadata)

    @override
    def fault(self, problem: Problem) -> str:
        numbers, target = problem.metadata.get("numbers"), problem.metadata.get("target")
        listed = isinstance(numbers, (list, tuple)) and all(isinstance(each, int) for each in numbers)
        return "" if listed and isinstance(target, int) else "the metadata has no whole 'numbers' and 'target'"

    @override
    def matches(self, problem: Problem, text: str) -> bool:
        found = self.answer_in(problem, text)
        if found is None:
            return False
        value, used = evaluate(found)
        left = Counter(problem.metadata["numbers"])
        left.subtract(used)
        allowed = min(left.values()) >= 0 and not (self.use_all and any(left.values()))
        return value == problem.metadata["target"] and allowed

    @override
    def answer_in(self, problem: Problem, text: str) -> str | None:
        return expression_in(text, self.place, problem.metadata["numbers"], problem.text)

    @override
    def split_key(self, problem: Problem) -> str:
        numbers, target = problem.metadata.get("numbers"), problem.metadata.get("target")
        text = f"{' '.join(map(str, numbers))}={target}:" if isinstance(numbers, (list, tuple)) else problem.text
        given, _, target = text.partition("=")
        return " ".join(sorted(given.split())) + "=" + target

    def _solution(self, rng: random.Random, count: int) -> tuple[list[int], int, str] | None:
        """Return numbers, target and expression, built from left to right; None at a dead end."""
        numbers = [rng.randint(1, self.largest) for _ in range(count)]
        value, expression, atomic = numbers[0], str(numbers[0]), True
        for number in numbers[1:]:
            symbol = rng.choice(self.operators)
            product = symbol in "*/"
            left = expression if atomic or not product else f"({expression})"
            if symbol == "/" and (number == 0 or value % number):
                return None
            value = int(evaluate(f"{value}{symbol}{number}")[0])
            expression, atomic = f"{left}{symbol}{number}", product
            if not 0 < value <= 10 * self.largest:
                return None
        return None if value in numbers else (numbers, value, expression)


def expression_in(text: str, place: str, numbers: Sequence[int], prompt: str = "") -> str | None:
    """Return the expression that a completion gives in a place, without spaces; None without one."""
    given = Counter(numbers)

    def begins(part: str) -> str | None:  # its value and sides on the way also follow "="
        found = _read(part)
        if found is None:
            return None
        used = Counter(evaluate(found)[1])
        return found if used.total() > 1 and used <= given else None

    text = _FRACTION.sub(r"((\1)/(\2))", _LATEX.sub(" ", ending(text)))
    return answer_in(plain(text), place, _read, begins, prompt=prompt)


def _read(text: str) -> str | None:
    """Return the expression of two or more numbers that a text is, up to "=" or the end of a sentence."""
    result = _RESULT.match(text)  # of 26 = 3 * 7 + 5
    whole = _WHOLE.match(text, result.end() if result else 0)
    if whole is None:
        return None
    found = whole[1].translate(_SIGNS)
    try:
        _, used = evaluate(found)
    except ExpressionError:
        return None
    return found.replace(" ", "") if len(used) > 1 else None


class ExpressionError(ValueError):
    """The text is not an expression."""


def evaluate(text: str) -> tuple[Fraction, list[Fraction]]:
    """Return the exact value of an expression and the numbers in it, in order.

    Products come before sums, both from left to right. Numbers have no sign, no leading zero, and at most nine digits.

    Args:
        text: any text.

    Raises:
        ExpressionError: if it is longer than `LONGEST`, not an expression, or divides by zero.
    """
    if len(text) > LONGEST or not _ARITHMETIC.fullmatch(text):
        raise ExpressionError(f"not an expression of at most {LONGEST} characters: {text[:40]}")
    try:
        return calculate(text, _ALLOWED)
    except ValueError as error:
        raise ExpressionError(str(error)) from error
