"""The example of sums for a real model: what is asked, and that no sum is in both splits."""

from pathlib import Path

from rlenv.stream import ProblemStream
from verifiers import make_verifier

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
