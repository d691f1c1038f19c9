import random
import re

import pytest
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from verifiers import Arith, Problem
from verifiers.builtin.countdown import evaluate

OPERATORS = ["+", "-", "*", "+-", "+-*"]


CHAINS = st.fixed_dictionaries(
    {"digits": st.integers(1, 9), "operators": st.sampled_from(OPERATORS), "operands": st.integers(2, 9)}
)


@drawn(40)
@given(st.integers(0, 2**32), CHAINS, st.text(max_size=4))
def test_a_chain_is_computed_with_products_before_sums_and_nothing_longer_is_right(seed, arguments, more):
    verifier = Arith(**arguments)
    problem = verifier.sample(random.Random(seed))
    numbers, symbols = re.findall(r"\d+", problem.prompt), re.findall(r"[-+*]", problem.prompt)
    assert len(numbers) == arguments["operands"]
    assert {len(number) for number in numbers} == {arguments["digits"]}
    assert arguments["digits"] == 1 or all(number[0] != "0" for number in numbers)
    assert set(symbols) <= set(arguments["operators"])
    assert verifier.verify(problem, problem.answer).reward == 1.0
    assert verifier.verify(problem, problem.answer + more).reward == float(not more)
    assert int(problem.answer) == evaluate(problem.prompt.rstrip("="))[0]
    assert len(symbols) == len(numbers) - 1
    assert set(problem.prompt + problem.answer) <= set(verifier.alphabet)
    assert len(problem.prompt) <= verifier.prompt_length
    assert len(problem.answer) <= verifier.answer_length


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("12+34=", "34+12=", True),
        ("12-34=", "34-12=", False),
        ("12+34=", "12*34=", False),
        ("1+2+3=", "3+1+2=", True),
        ("1+2*3=", "3*2+1=", True),
        ("9+5-1=", "5-1+9=", True),
        ("1+2+3=", "1+2*3=", False),
        ("8-2*3=", "3*2-8=", False),
        ("12*3-4*5=", "12*5-4*3=", False),
    ],
)
def test_problems_that_are_one_to_a_learner_share_a_split_key(one, other, same):
    verifier = Arith(operators="+-*", operands=3)
    assert (verifier.split_key(Problem(one)) == verifier.split_key(Problem(other))) is same


@drawn(40)
@given(st.integers(0, 2**32), st.integers(2, 4))
def test_chains_with_one_split_key_have_one_answer(seed, operands):
    verifier, rng, answers = Arith(1, "+-*", operands), random.Random(seed), {}
    for problem in (verifier.sample(rng) for _ in range(50)):
        assert answers.setdefault(verifier.split_key(problem), problem.answer) == problem.answer


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_level_has_operands_of_its_own_length(level):
    verifier = Arith(digits=4, levels=3)
    problem = verifier.sample_at(random.Random(0), level)
    assert problem.metadata == {"level": level}
    assert {len(number) for number in re.findall(r"\d+", problem.prompt)} == {level + 1}


def test_the_problems_of_a_seed_stay_what_they_were():
    rng = random.Random(0)
    assert [Arith(operators="+-*").sample(rng).prompt for _ in range(4)] == ["59+63=", "43-75=", "61-48=", "55+84="]


def test_every_level_is_drawn_and_a_single_one_is_not_mentioned():
    rng, verifier = random.Random(0), Arith(digits=3, levels=3)
    levels = [verifier.sample(rng).metadata["level"] for _ in range(300)]
    assert all(70 < levels.count(level) < 130 for level in (1, 2, 3))
    assert Arith().sample(rng).metadata == {}
