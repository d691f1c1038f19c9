import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers import Length, Problem

PROBLEM = Problem("Write.")


@pytest.mark.parametrize(
    ("options", "completion", "reward"),
    [
        ({"maximum": 5}, "abcde", 1.0),
        ({"maximum": 5}, "abcdef", 0.0),
        ({"maximum": 5}, "", 0.0),
        ({"maximum": 5}, " \n\t ", 0.0),
        ({"maximum": 5, "minimum": 3}, "ab", 0.0),
        ({"maximum": 5, "minimum": 0}, "", 1.0),
        ({"maximum": 5, "margin": 4}, "abcdef", 0.75),
        ({"maximum": 5, "margin": 4}, "abcdefghi", 0.0),
        ({"maximum": 5, "minimum": 4, "margin": 4}, "ab", 0.5),
        ({"maximum": 3, "unit": "words"}, "one two three four", 0.0),
        ({"maximum": 3, "unit": "words", "margin": 2}, "one two three four", 0.5),
        ({"maximum": 3, "unit": "words"}, "x" * 100_000, 1.0),
        ({"maximum": 5}, "\ud800" * 5, 1.0),
    ],
)
def test_the_reward_is_one_inside_and_falls_over_the_margin(options, completion, reward):
    verdict = Length(**options).verify(PROBLEM, completion)
    assert verdict.reward == reward
    assert verdict.parts["length"] == len(completion.split() if "unit" in options else completion.strip())


@given(st.integers(0, 400), st.integers(0, 400))
def test_a_length_nearer_to_the_range_is_rewarded_no_less(one, other):
    verifier = Length(maximum=200, minimum=100, margin=70)
    near, far = sorted((one, other), key=lambda length: max(100 - length, length - 200, 0))
    assert verifier.verify(PROBLEM, "x" * near).reward >= verifier.verify(PROBLEM, "x" * far).reward


def test_the_answer_is_shown_where_its_length_is_right():
    assert Length(10).demonstration(Problem("p", "seven ch")) == "seven ch"
    assert Length(5).demonstration(Problem("p", "seven ch")) != "seven ch"
