import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers import Length, Problem, make_verifier
from verifiers.lint.report import lint

PROBLEM = Problem("Write.")


@pytest.mark.parametrize(
    ("options", "completion", "reward"),
    [
        ({"maximum": 5}, "abcde", 1.0),
        ({"maximum": 5}, "abcdef", 0.0),
        ({"maximum": 5}, "a", 1.0),
        ({"maximum": 5}, "", 0.0),
        ({"maximum": 5}, " \n\t ", 0.0),
        ({"maximum": 5}, "  abcde \n", 1.0),
        ({"maximum": 5, "minimum": 3}, "ab", 0.0),
        ({"maximum": 5, "minimum": 0}, "", 1.0),
        ({"maximum": 5, "margin": 4}, "abcdef", 0.75),
        ({"maximum": 5, "margin": 4}, "abcdefgh", 0.25),
        ({"maximum": 5, "margin": 4}, "abcdefghi", 0.0),
        ({"maximum": 5, "minimum": 4, "margin": 4}, "ab", 0.5),
        ({"maximum": 5, "minimum": 2, "margin": 4}, "", 0.0),
        ({"maximum": 3, "unit": "words"}, "one two  three\n", 1.0),
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


def test_the_name_of_the_verifier_may_carry_the_maximum():
    assert make_verifier("length:3").verify(PROBLEM, "abc").reward == 1.0
    assert make_verifier("length:3").verify(PROBLEM, "abcd").reward == 0.0


RANGES = st.tuples(st.integers(1, 300), st.integers(0, 300)).map(sorted)


@given(RANGES, st.integers(0, 50), st.sampled_from(["characters", "words"]))
def test_demonstrations_and_paraphrases_have_the_right_length(bounds, margin, unit):
    verifier = Length(max(bounds[1], 1), bounds[0], margin, unit)
    problem = verifier.examples()[0]
    for completion in (verifier.demonstration(problem), *verifier.paraphrases(problem)):
        assert completion
        assert verifier.verify(problem, completion).reward == 1.0


@given(st.integers(0, 400), st.integers(0, 400))
def test_a_length_nearer_to_the_range_is_rewarded_no_less(one, other):
    verifier = Length(maximum=200, minimum=100, margin=70)
    near, far = sorted((one, other), key=lambda length: max(100 - length, length - 200, 0))
    assert verifier.verify(PROBLEM, "x" * near).reward >= verifier.verify(PROBLEM, "x" * far).reward


def test_the_answer_is_shown_where_its_length_is_right():
    assert Length(10).demonstration(Problem("p", "seven ch")) == "seven ch"
    assert Length(5).demonstration(Problem("p", "seven ch")) != "seven ch"


@pytest.mark.parametrize("options", [{}, {"maximum": 60, "minimum": 10, "unit": "words"}])
def test_lint_has_two_hundred_right_answers(options):
    report = lint(Length(**options))
    assert {finding.rule for finding in report.findings} <= ({"speed", "declared"} if options else {"speed"})
    assert report.false_rejects == 0
    assert report.honest >= 200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maximum": 0}, "maximum must be a whole number from 1 to 1000000, got 0"),
        ({"maximum": "many"}, "maximum must be a whole number from 1 to 1000000, got 'many'"),
        ({"maximum": "٣"}, "maximum must be a whole number from 1 to 1000000, got '٣'"),
        ({"maximum": 5, "minimum": 6}, "minimum must be a whole number from 0 to 5, got 6"),
        ({"margin": -1}, "margin must be a whole number from 0 to 1000000, got -1"),
        ({"margin": 0.5}, "margin must be a whole number from 0 to 1000000, got 0.5"),
        ({"unit": "word"}, "unit must be one of characters, words, got 'word'; did you mean 'words'"),
    ],
)
def test_what_is_out_of_range_is_refused(options, message):
    with pytest.raises(ValueError, match=f"length: {message}"):
        Length(**options)
