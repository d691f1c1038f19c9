import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers import Countdown, Problem
from verifiers.builtin.countdown import evaluate

PROBLEM = Problem("3 5 7 7=26:", "3*7+5", {"numbers": [3, 5, 7, 7], "target": 26})
SETTINGS = st.integers(2, 6).flatmap(
    lambda numbers: st.fixed_dictionaries(
        {
            "numbers": st.just(numbers),
            "largest": st.sampled_from([4, 9, 25, 999]),
            "operators": st.sampled_from(["+", "+-", "-+*", "+-*/", "/+"]),
            "levels": st.integers(1, numbers - 1),
        }
    )
)


COMPLETIONS = {
    "3 x 7 + 5 = 26!": 1.0,
    "$\\boxed{3 \\times 7 + 5}$": 1.0,
    "<think>3*7+7</think>\n<answer>3 * 7 + 5</answer>": 1.0,
    "7 * 3 = 21\n21 + 5 = 26\n\nSo the expression is **7 · 3 + 5**.": 1.0,
    "3*7+5 = 27": 1.0,  # what follows "=" is cut off
    "7*5-7-3+1": 0.0,  # a 1 that is not there
    "26": 0.0,
    "３*7+5": 0.0,
    "3*7+5.0": 0.0,
    "\\boxed{3*7+5} \\boxed{3*7+7}": 0.0,
    "": 0.0,
    "3*7+5" + "*1" * 50_000: 0.0,
    "(" * 50_000 + "3*7+5" + ")" * 50_000: 0.0,
    "\\frac{" * 20_000 + "3*7+5": 0.0,
}


@pytest.mark.parametrize("completion", COMPLETIONS)
def test_an_expression_of_the_given_numbers_has_to_reach_the_target(completion):
    assert Countdown().verify(PROBLEM, completion).reward == COMPLETIONS[completion]


def test_fractions_on_the_way_are_exact():
    problem = Problem("3 3 8 8=24:", "", {"numbers": [3, 3, 8, 8], "target": 24})
    assert Countdown().verify(problem, "8/\\left(3-\\frac{8}{3}\\right) = 24").reward == 1.0


def test_a_number_given_twice_may_be_used_twice():
    assert Countdown().verify(Problem("7 7=14:", "7+7", {"numbers": (7, 7), "target": 14}), "7+7").reward == 1.0
    assert Countdown().verify(Problem("7 3=14:", "", {"numbers": (7, 3), "target": 14}), "7+7").reward == 0.0


@given(st.integers(0, 2**32), SETTINGS)
def test_every_problem_has_a_solution_and_keeps_to_what_is_declared(seed, arguments):
    verifier = Countdown(**arguments)
    problem = verifier.sample(random.Random(seed))
    *numbers, target = map(int, re.findall(r"\d+", problem.prompt))
    assert problem.prompt == f"{' '.join(map(str, numbers))}={target}:"
    assert (list(problem.metadata["numbers"]), problem.metadata["target"]) == (numbers, target)
    assert len(numbers) == arguments["numbers"] - arguments["levels"] + problem.metadata.get("level", 1)
    assert max(numbers) <= arguments["largest"]
    assert target not in numbers
    value, used = evaluate(problem.answer)
    assert (value, sorted(used)) == (target, sorted(numbers))
    assert set(re.findall(r"[-+*/]", problem.answer)) <= set(arguments["operators"])
    assert set(problem.prompt + problem.answer) <= set(verifier.alphabet)
    assert len(problem.prompt) <= verifier.prompt_length
    assert len(problem.answer) <= verifier.answer_length
    for completion in (verifier.demonstration(problem), *verifier.paraphrases(problem)):
        assert verifier.verify(problem, completion).reward == 1.0


def test_the_order_of_the_numbers_does_not_change_the_split():
    verifier = Countdown()
    keys = [verifier.split_key(Problem(prompt)) for prompt in ("3 5 7=26:", "7 3 5=26:", "3 5 7=22:", "3 5 5=26:")]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
