"""countdown: numbers and a target, as in "3 5 7=26:" -> "3*7+5"."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from typing_extensions import override

from ..base import RIGHT, WRONG, Problem, Verdict, Verifier
from ..plugins.arguments import whole_number
from ..plugins.registry import register_verifier
from ..reading.expressions import ExpressionError, evaluate
from ..reading.extraction import STRICT, extract_rule
from ..reading.written import expression_of

_OPERATORS = "+-*/"


@register_verifier("countdown")
class Countdown(Verifier):
    r"""Reach the target with the given numbers; reward 1.0 for an expression that does, else 0.0.

    Prompt: the numbers, `=`, the target, `:`, as in `3 5 7=26:`. Answer: an expression of the given numbers, each used
    at most once, with `+ - * /` and parentheses, such as `3*7+5`; fractions on the way are exact. By default the
    expression may be written as in "The answer is $3 \times 7 + 5 = 26$.", with working before it. Every problem has a
    solution, and the target is not among its numbers. `metadata` holds "numbers" and "target"; listed problems
    need both, with any prompt. 3 5 7=26 and 7 3 5=26 are in the same split.

    Alphabet: digits, space, `=`, `:`, the chosen operators, and parentheses if `*` or `/` is among them. Answers may
    use any operator, and spaces between numbers and operators. No known holes.

    Args:
        numbers: numbers per problem, 2 to 6; with several levels, of the highest.
        largest: the largest number, 4 to 999; the target is at most ten times that.
        operators: used in the solutions, drawn uniformly: `+`, and any of `-`, `*`, `/`.
        levels: number of difficulty levels, 1 to `numbers` - 1, drawn uniformly: the highest has `numbers` numbers,
            each lower level one less.
        extract: "stated", the expression that the completion states; "last", the last one in it; "boxed", that in
            `\boxed{}`; or "strict": nothing but the expression, whose divisions must not leave a remainder.
    """

    def __init__(
        self,
        numbers: int = 3,
        largest: int = 9,
        operators: str = "+-*",
        levels: int = 1,
        extract: str | None = None,
    ) -> None:
        self.rule = extract_rule("countdown", extract)
        self.numbers = whole_number("countdown", "numbers", numbers, 2, 6)
        self.largest = whole_number("countdown", "largest", largest, 4, 999)
        self.levels = whole_number("countdown", "levels", levels, 1, numbers - 1)
        if not isinstance(operators, str) or set(operators) - set(_OPERATORS) or "+" not in operators:
            raise ValueError(f"countdown: operators must be '+' with or without some of '-*/', got {operators!r}")
        self.operators = "".join(dict.fromkeys(operators))
        nested = bool(set(operators) & set("*/"))
        self.alphabet = "0123456789 =:" + self.operators + "()" * nested
        width = len(str(largest))
        self.prompt_length = numbers * (width + 1) + width + 2
        self.answer_length = numbers * (width + 1) - 1 + 2 * nested * (numbers - 2)

    def sample(self, rng: random.Random) -> Problem:
        """Return a problem of a uniform level, made from a solution."""
        return self.sample_at(rng, 1 if self.levels == 1 else rng.randint(1, self.levels))

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

    def paraphrases(self, problem: Problem) -> list[str]:
        """Return the solution with parentheses around it, and with spaces."""
        spaced = "".join(f" {c} " if c in _OPERATORS else c for c in problem.answer)
        return [f"({problem.answer})", spaced, f" {problem.answer} "]

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Evaluate the completion and compare its numbers with the given ones and its value with the target."""
        numbers, target = problem.metadata.get("numbers"), problem.metadata.get("target")
        if (
            not isinstance(numbers, (list, tuple))
            or not isinstance(target, int)
            or not all(isinstance(each, int) for each in numbers)
        ):
            return Verdict(0.0, status="error", reason="the metadata has no whole 'numbers' and 'target'")
        if self.rule != STRICT:
            found = expression_of(completion, numbers, target, self.rule)
            return RIGHT if found is not None and found.right else WRONG
        try:
            value, used = evaluate(completion)
        except ExpressionError:
            return WRONG
        return RIGHT if value == target and Counter(used) <= Counter(numbers) else WRONG

    @override
    def extract(self, problem: Problem, completion: str) -> str | None:
        if self.rule == STRICT:
            return completion.strip()
        found = expression_of(completion, problem.metadata["numbers"], problem.metadata["target"], self.rule)
        return None if found is None else found.text

    @override
    def split_key(self, problem: Problem) -> str:
        numbers, _, target = problem.text.partition("=")
        return " ".join(sorted(numbers.split())) + "=" + target

    def _solution(self, rng: random.Random, count: int) -> tuple[list[int], int, str] | None:
        """Return numbers, target and expression, built from left to right; None at a dead end."""
        numbers = [rng.randint(1, self.largest) for _ in range(count)]
        value, expression, atomic = numbers[0], str(numbers[0]), True
        for number in numbers[1:]:
            symbol = rng.choice(self.operators)
            product = symbol in "*/"
            left = expression if atomic or not product else f"({expression})"
            try:
                value = int(evaluate(f"{value}{symbol}{number}")[0])
            except ExpressionError:
                return None
            expression, atomic = f"{left}{symbol}{number}", product
            if not 0 < value <= 10 * self.largest:
                return None
        return None if value in numbers else (numbers, value, expression)
