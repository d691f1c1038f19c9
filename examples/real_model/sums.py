"""Sums of two numbers, asked in words: "What is 17 plus 8? Answer with a number." -> 25.

rlenv train --config configs/smollm2-sums.yaml
"""

from __future__ import annotations

import random

from rlenv._checks import check_count
from rlenv.verifiers import Problem
from rlenv.verifiers.builtin.numeric import Numeric


class Sums(Numeric):
    """Sums of two whole numbers, judged by the number that the answer states; reward 1.0 if it is right, else 0.0.

    17 plus 8 and 8 plus 17 are in the same split.

    Args:
        most: the largest number, up to 999; the smallest is 2.
        place: where the answer stands, see docs/verifiers.md.
    """

    prompt_length = len("What is 999 plus 999? Answer with a number.")
    answer_length = len("999 + 999 = 1998")

    def __init__(self, most: int = 40, place: str = "any") -> None:
        super().__init__(place=place)
        self.most = check_count("sums: most", most, 2, 999)

    def sample(self, rng: random.Random) -> Problem:
        """Return a sum of two uniform numbers."""
        a, b = rng.randint(2, self.most), rng.randint(2, self.most)
        return Problem(f"What is {a} plus {b}? Answer with a number.", str(a + b), {"terms": sorted((a, b))})

    def split_key(self, problem: Problem) -> str:
        """Return the two numbers in sorted order."""
        return str(problem.metadata["terms"])
