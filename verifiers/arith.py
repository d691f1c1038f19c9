"""arith: sums, differences and products of whole numbers, as in "12+34=" -> "46"."""

from __future__ import annotations

import operator
import random

from .base import Problem, Verdict, Verifier
from .registry import register_verifier

_OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_COMMUTATIVE = "+*"
_RIGHT, _WRONG = Verdict(1.0), Verdict(0.0)  # making one costs several times the comparison


@register_verifier("arith")
class Arith(Verifier):
    """Two operands of exactly `digits` digits; reward 1.0 for the exact answer, else 0.0.

    Prompt: `12+34=`; answer: `46`, no leading zeros, `-` in front of negative ones. The completion has to be the
    answer to the last character: " 46", "046" and "46." score 0. 12+34 and 34+12 fall into the same split.

    Args:
        digits: digits of each operand, 1 to 9 (one digit includes 0).
        operators: which of `+`, `-`, `*` are asked for; drawn uniformly.

    Raises:
        ValueError: for digits outside 1..9, or an unknown or missing operator.
    """

    def __init__(self, digits: int = 2, operators: str = "+") -> None:
        if isinstance(digits, bool) or not isinstance(digits, int) or not 1 <= digits <= 9:
            raise ValueError(f"arith: digits must be a whole number from 1 to 9, got {digits!r}")
        if not isinstance(operators, str) or not operators or set(operators) - set(_OPERATORS):
            raise ValueError(f"arith: operators must be some of {''.join(_OPERATORS)!r}, got {operators!r}")
        self.digits = digits
        self.operators = "".join(dict.fromkeys(operators))
        self.alphabet = "0123456789" + self.operators + "="
        self.prompt_length = 2 * digits + 2
        self.answer_length = 2 * digits if "*" in operators else digits + 1
        self._low = 0 if digits == 1 else 10 ** (digits - 1)
        self._high = 10**digits - 1

    def sample(self, rng: random.Random) -> Problem:
        """Return a problem with uniform operands and a uniform operator."""
        a, b = rng.randint(self._low, self._high), rng.randint(self._low, self._high)
        symbol = rng.choice(self.operators)
        return Problem(f"{a}{symbol}{b}=", str(_OPERATORS[symbol](a, b)))

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Compare the completion with the answer, character by character."""
        return _RIGHT if completion == problem.answer else _WRONG

    def split_key(self, problem: Problem) -> str:
        """Return the prompt with the operands in order where the operator commutes."""
        for symbol in _COMMUTATIVE:
            if symbol in problem.prompt:
                return symbol.join(sorted(problem.prompt.rstrip("=").split(symbol)))
        return problem.prompt
