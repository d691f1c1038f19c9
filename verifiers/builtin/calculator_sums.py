"""calculator-sums: sums of numbers that are too long for a small model, with a calculator."""

from __future__ import annotations

import random
from collections.abc import Sequence

from typing_extensions import override

from rlenv._checks import check_count

from ..base import Problem
from ..dialogues.toolbox import MOST_CALLS
from ..dialogues.tools import WithTools
from ..plugins.registry import register_verifier
from .arith import Arith

FAILED = "?"


@register_verifier("calculator-sums")
class CalculatorSums(WithTools):
    """Sums of long numbers, with the tool `calculator`; reward 1.0 for the exact answer, else 0.0.

    Prompt: `123456+654321=`. A turn `calc(123456+654321)` is answered with the result and a new line, one that calls it
    in the wrong way with `?`; the first turn without a call is judged as `arith` judges: it has to be the answer to the
    last character. A demonstration calls the calculator once and copies the result. The model need not call it: an
    answer without is judged alike, so that the reward says whether the call is worth its tokens.

    Alphabet: the digits, `+`, `=`, `calc()`, `?` and the new line. No known holes.

    Args:
        digits: digits of each number, 1 to 9; with several levels, of the highest.
        operands: numbers per problem, 2 to 9.
        levels: number of difficulty levels, 1 to `digits`; see `arith`.
        turns: with calls, 1 to 100.
    """

    def __init__(self, digits: int = 6, operands: int = 2, levels: int = 1, turns: int = 1) -> None:
        sums = Arith(digits, "+", operands, levels)
        check_count("calculator-sums: turns", turns, 1, 100)
        assert sums.answer_length is not None
        room = max(sums.answer_length + 1, 2 * MOST_CALLS)
        alphabet = "".join(dict.fromkeys(f"{sums.alphabet}calc(){FAILED}\n"))
        super().__init__(sums, ["calculator"], turns, room, alphabet, FAILED)

    @property
    @override
    def answer_length(self) -> int:  # type: ignore[override]
        """The length of a call in characters; a call is longer than an answer."""
        return (self.verifier.prompt_length or 0) + len("calc()")

    @override
    def demonstration_turns(self, problem: Problem, rng: random.Random) -> Sequence[str]:
        return [f"calc({problem.text.rstrip('=')})", problem.answer]
