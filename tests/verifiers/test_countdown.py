import random
import re

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


def test_a_text_of_any_length_is_read():
    for text in ("3*7+5" + "*1" * 50_000, "(" * 50_000 + "3*7+5" + ")" * 50_000, "\\frac{" * 20_000 + "3*7+5"):
        assert Countdown().verify(PROBLEM, text).reward == 0.0


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
