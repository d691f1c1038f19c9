"""Completions of any length are read in linear time; what is read in them is in test_laws.py and answers/."""

import pytest

from rlenv.verifiers.answer import PLACES, answer_in, boxes
from rlenv.verifiers.numbers import first_number, last_number, leading_number
from rlenv.verifiers.text import collapsed, conclusion, last_line


@pytest.mark.parametrize(
    "part",
    [
        "\\boxed{", "}", "{", "<answer>", "answer is ", "answer", "is ", "= ", "####", "<think>", "\n", "YES ", "1",
        "1,", "1,000", "43 ", "3/", "- ", "$", "\\frac{1}", "is 43 + ", "\u00a0", "**", "4 km/", "\\text{", "1 1/",
    ],
)  # fmt: skip
def test_a_long_text_is_read_without_backtracking(part):
    for place in PLACES:
        answer_in(part * (50_000 // len(part)), place, first_number)
    for read in (first_number, last_number, leading_number, last_line, collapsed, boxes, conclusion):
        read(part * (20_000 // len(part)))
