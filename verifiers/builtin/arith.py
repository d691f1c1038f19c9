"""arith: sums, differences and products of whole numbers, as in "12+34=" -> "46"."""

from __future__ import annotations

import random
from collections.abc import Sequence

from typing_extensions import override

from rlenv._checks import check_count

from ..base import RIGHT, WRONG, Problem, Verdict, Verifier
from ..plugins.registry import register_verifier

_OPERATORS = "+-*"


@register_verifier("arith")
class Arith(Verifier):
    """Chains of whole numbers with `+`, `-` and `*`; reward 1.0 for the exact answer, else 0.0.

    Prompt: `12+34=`, or `12+34-5=` with three operands; answer: `46`, no leading zeros, `-` in front of negative ones.
    Products come before sums, and sums go from left to right. The completion has to be the answer to the last
    character: " 46", "046" and "46." score 0. 12+34 and 34+12 are in the same split.

    Alphabet: the digits, the operators asked for, `=`. No known holes.

    Args:
        digits: digits of each operand, 1 to 9 (one digit includes 0); with several levels, of the highest.
        operators: which of `+`, `-`, `*` to use; drawn uniformly.
        operands: numbers per problem, 2 to 9.
        levels: number of difficulty levels, 1 to `digits`, drawn uniformly: the highest has operands of `digits`
            digits, each lower level one digit less.
    """

    def __init__(self, digits: int = 2, operators: str = "+", operands: int = 2, levels: int = 1) -> None:
        self.digits = check_count("arith: digits", digits, 1, 9)
        if not isinstance(operators, str) or not operators or set(operators) - set(_OPERATORS):
            raise ValueError(f"arith: operators must be some of {_OPERATORS!r}, got {operators!r}")
        self.operators = "".join(dict.fromkeys(operators))
        self.operands = check_count("arith: operands", operands, 2, 9)
        self.levels = check_count("arith: levels", levels, 1, digits)
        self.alphabet = "0123456789" + self.operators + "="
        self.prompt_length = (digits + 1) * operands
        self.answer_length = self._longest_answer()
        self._bounds = [(0 if n == 1 else 10 ** (n - 1), 10**n - 1) for n in range(1, digits + 1)][-levels:]

    @override
    def sample_at(self, rng: random.Random, level: int) -> Problem:
        numbers = [rng.randint(*self._bounds[level - 1]) for _ in range(self.operands)]
        symbols = [rng.choice(self.operators) for _ in numbers[1:]]
        prompt = "".join(f"{symbol}{number}" for symbol, number in zip(["", *symbols], numbers, strict=True))
        metadata = {} if self.levels == 1 else {"level": level}
        return Problem(f"{prompt}=", str(_value(numbers, symbols)), metadata)

    @override
    def verify(self, problem: Problem, completion: str) -> Verdict:
        if not problem.answer:  # of a list of prompts alone
            return Verdict(0.0, status="error", reason="the problem has no reference answer")
        return RIGHT if completion == problem.answer else WRONG

    def split_key(self, problem: Problem) -> str:
        """Return the prompt with the terms of a sum, and the factors of a product, in sorted order."""
        if not set("+*") & set(problem.text):
            return problem.text
        terms = problem.text.rstrip("=").split("+")
        return "+".join(sorted(term if "-" in term else "*".join(sorted(term.split("*"))) for term in terms))

    def _longest_answer(self) -> int:
        low, high = 0 if self.digits == 1 else 10 ** (self.digits - 1), 10**self.digits - 1
        products = "*" in self.operators
        most = high**self.operands if products else self.operands * high
        least = low - (high ** (self.operands - 1) if products else (self.operands - 1) * high)
        return max(len(str(most)), len(str(least)) if "-" in self.operators else 0)


def _value(numbers: Sequence[int], symbols: Sequence[str]) -> int:
    terms = [numbers[0]]
    for symbol, number in zip(symbols, numbers[1:], strict=True):
        if symbol == "*":
            terms[-1] *= number
        else:
            terms.append(number if symbol == "+" else -number)
    return sum(terms)
