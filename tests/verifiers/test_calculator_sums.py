"""calculator-sums: the demonstrated turns solve every problem, and calls that fail cost a turn only."""

import pickle
import random

import pytest

import rlenv  # noqa: F401
from verifiers import CalculatorSums
from verifiers.dialogues import begin, reply_to


@pytest.mark.parametrize("kwargs", [{}, {"digits": 9, "operands": 9}, {"digits": 3, "levels": 3}])
def test_the_demonstration_is_right_and_fits(kwargs):
    verifier = pickle.loads(pickle.dumps(CalculatorSums(**kwargs)))
    for seed in range(50):
        problem = verifier.sample(random.Random(seed))
        call, answer = verifier.demonstration_turns(problem, random.Random(0))
        dialogue = begin(verifier, problem)
        reply = reply_to(dialogue, call)
        assert reply.content == [{"role": "tool", "content": answer}] and len(answer) < verifier.reply_length
        assert reply_to(dialogue, answer).verdict.reward == 1
        assert max(len(call), len(answer)) <= verifier.answer_length
        assert set(problem.text + call + answer + "?\n") <= set(verifier.alphabet)
        assert [verifier.verify(problem, text).reward for text in (answer, call, answer + "0")] == [1, 0, 0]


def test_a_bad_call_is_answered_in_the_alphabet():
    verifier = CalculatorSums(digits=2)
    problem = verifier.sample(random.Random(0))
    for turn in ("calc()", "calc(12+)", "calc(calc(1))", "calc(?)", "calc(1)\n" * 9, "calc(99999999999999999999)"):
        reply = reply_to(begin(verifier, problem), turn)
        assert {message["content"] for message in reply.content} == {"?"} and reply.counts["tool_errors"] >= 1
    assert verifier.max_turns == 2 and not verifier.isolated
