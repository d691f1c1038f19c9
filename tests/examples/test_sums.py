"""The example of sums for a real model: what is asked, what is right, and that no sum is in both splits."""

from pathlib import Path

import pytest

from rlenv.problems.stream import ProblemStream
from verifiers import Problem, make_verifier

SUMS = f"{Path(__file__).parents[2] / 'examples' / 'real_model' / 'sums.py'}:Sums"


def problems(split, count=300):
    stream = ProblemStream(make_verifier(SUMS), split)
    return [stream[i] for i in range(count)]


def test_a_sum_is_asked_in_words_and_its_answer_is_right():
    for problem in problems("train", 50):
        a, b = problem.metadata["terms"]
        assert problem.text in {f"What is {x} plus {y}? Answer with a number." for x, y in ((a, b), (b, a))}
        assert problem.answer == str(a + b) and 2 <= a <= b <= 40


def test_no_sum_is_in_both_splits_in_either_order():
    terms = [{tuple(problem.metadata["terms"]) for problem in problems(split)} for split in ("train", "test")]
    assert len(terms[0]) > 150 and len(terms[1]) > 100 and not terms[0] & terms[1]


@pytest.mark.parametrize(
    ("completion", "right"),
    [
        ("17 + 8 = 25", True),
        ("17 + 8 = 24", False),
        ("To solve this problem, we need to find a number that, when added to", False),
        ("", False),
    ],
)
def test_the_number_that_an_answer_states_is_judged(completion, right):
    problem = Problem("What is 17 plus 8? Answer with a number.", "25", {"terms": [8, 17]})
    assert make_verifier(SUMS).verify(problem, completion).reward == float(right)
