from hypothesis import given
from hypothesis import strategies as st

from verifiers import Length, Problem

PROBLEM = Problem("Write.")


@given(st.integers(0, 400), st.integers(0, 400))
def test_a_length_nearer_to_the_range_is_rewarded_no_less(one, other):
    verifier = Length(maximum=200, minimum=100, margin=70)
    near, far = sorted((one, other), key=lambda length: max(100 - length, length - 200, 0))
    assert verifier.verify(PROBLEM, "x" * near).reward >= verifier.verify(PROBLEM, "x" * far).reward


def test_characters_or_words_are_counted_however_many():
    for options, completion, counted in (({"maximum": 5}, " ab \n", 2), ({"unit": "words"}, "x" * 100_000, 1)):
        verdict = Length(**options).verify(PROBLEM, completion)
        assert (verdict.reward, verdict.parts) == (1.0, {"length": counted})


def test_the_answer_is_shown_where_its_length_is_right():
    assert Length(10).demonstration(Problem("p", "seven ch")) == "seven ch"
    assert Length(5).demonstration(Problem("p", "seven ch")) != "seven ch"
