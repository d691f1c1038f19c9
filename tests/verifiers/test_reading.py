"""Completions of any length are read in linear time; what is read in them is in test_laws.py and answers/."""

import pytest

from rlenv.verifiers import Problem, make_verifier
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


def test_a_last_line_whose_beginning_is_cut_off_is_no_answer():
    found = [answer_in(text, "last", lambda line: line[0]) for text in ("b" + "a" * 20_000, "b" * 20_000 + "\na")]
    assert found == [None, "a"]
    nested = '{"a":' * 20_000 + "{}"  # the part that is read begins with a":
    assert make_verifier("choice").verify(Problem("Which?", "A"), nested).reward == 0
