import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers import Arith, Problem

OPERATORS = ["+", "-", "*", "+-", "+-*"]


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        ("46", 1.0),
        ("", 0.0),
        ("4", 0.0),
        ("47", 0.0),
        ("64", 0.0),
        ("-46", 0.0),
        ("+46", 0.0),
        ("046", 0.0),
        ("46.", 0.0),
        ("46.0", 0.0),
        (" 46", 0.0),
        ("46 ", 0.0),
        ("4 6", 0.0),
        ("46\n", 0.0),
        ("4_6", 0.0),
        ("460", 0.0),
        ("46=", 0.0),
        ("4<pad>6", 0.0),
        ("٤٦", 0.0),
        ("\uff14\uff16", 0.0),
        ("⁴⁶", 0.0),
        ("0x2e", 0.0),
        ("9" * 10_000, 0.0),
    ],
)
def test_only_the_exact_answer_is_rewarded(completion, reward):
    assert Arith().verify(Problem("12+34=", "46"), completion).reward == reward


@pytest.mark.parametrize(("completion", "reward"), [("-9", 1.0), ("9", 0.0), ("−9", 0.0), ("- 9", 0.0), ("-09", 0.0)])
def test_a_negative_answer_has_one_spelling(completion, reward):
    assert Arith(digits=1, operators="-").verify(Problem("0-9=", "-9"), completion).reward == reward


@given(st.integers(0, 2**32), st.integers(1, 9), st.sampled_from(OPERATORS), st.text(max_size=4))
def test_the_answer_is_right_and_nothing_longer_is(seed, digits, operators, more):
    verifier = Arith(digits, operators)
    problem = verifier.sample(random.Random(seed))
    a, symbol, b = re.fullmatch(r"(\d+)([-+*])(\d+)=", problem.prompt).groups()
    assert int(problem.answer) == {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[symbol]
    assert symbol in operators
    assert len(a) == len(b) == digits
    assert digits == 1 or "0" not in (a[0], b[0])
    assert verifier.verify(problem, problem.answer).reward == 1.0
    assert verifier.verify(problem, problem.answer + more).reward == float(not more)


@given(st.integers(0, 2**32), st.integers(1, 9), st.sampled_from(OPERATORS))
def test_alphabet_and_lengths_bound_every_prompt_and_answer(seed, digits, operators):
    verifier = Arith(digits, operators)
    problem = verifier.sample(random.Random(seed))
    assert set(problem.prompt + problem.answer) <= set(verifier.alphabet)
    assert len(problem.prompt) <= verifier.prompt_length
    assert len(problem.answer) <= verifier.answer_length


@pytest.mark.parametrize("digits", range(1, 10))
@pytest.mark.parametrize(
    ("operators", "longest"),
    [
        ("+", lambda low, high: high + high),
        ("-", lambda low, high: low - high),
        ("*", lambda low, high: high * high),
    ],
)
def test_the_longest_answer_just_fits(digits, operators, longest):
    low, high = (0 if digits == 1 else 10 ** (digits - 1)), 10**digits - 1
    assert len(str(longest(low, high))) == Arith(digits, operators).answer_length


def test_every_one_digit_problem_is_asked():
    rng, verifier = random.Random(0), Arith(digits=1)
    assert {verifier.sample(rng).prompt for _ in range(2000)} == {f"{a}+{b}=" for a in range(10) for b in range(10)}


def test_every_operator_is_asked():
    rng, verifier = random.Random(0), Arith(operators="*-+")
    assert {verifier.sample(rng).prompt[2] for _ in range(100)} == set("+-*")


@pytest.mark.parametrize("digits", [0, -1, 10, 2.0, "2", None, True])
def test_digits_outside_one_to_nine_are_refused(digits):
    with pytest.raises(ValueError, match=f"digits must be a whole number from 1 to 9, got {digits!r}"):
        Arith(digits)


@pytest.mark.parametrize("operators", ["", "/", "+/", "plus", None, ["+"]])
def test_unknown_operators_are_refused(operators):
    with pytest.raises(ValueError, match=re.escape(f"operators must be some of '+-*', got {operators!r}")):
        Arith(operators=operators)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("12+34=", "34+12=", True),
        ("12*34=", "34*12=", True),
        ("12-34=", "34-12=", False),
        ("12+34=", "12*34=", False),
        ("12+34=", "12+35=", False),
        ("11+23=", "12+13=", False),
    ],
)
def test_problems_that_are_one_to_a_learner_share_a_split_key(one, other, same):
    verifier = Arith(operators="+-*")
    assert (verifier.split_key(Problem(one)) == verifier.split_key(Problem(other))) is same


def test_a_problem_is_a_function_of_the_generator_alone():
    assert Arith().sample(random.Random(7)) == Arith().sample(random.Random(7))
