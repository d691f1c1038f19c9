"""The answer that a completion gives, for a majority vote: equal answers become equal texts."""

import pytest

from verifiers import Arith, Choice, Exact, Isolated, Numeric, Problem, Weighted

PROBLEM = Problem("How many?", "1008", {"choices": ["Lima", "Oslo"]})


@pytest.mark.parametrize(
    ("verifier", "completion", "answer"),
    [
        (Arith(), " 46\n", "46"),
        (Numeric(), "12 * 84 is\n1,008 seats", "1008"),
        (Numeric(), "I do not know", None),
        (Numeric(inside="answer"), "7 <answer>1008.0</answer>", "1008"),
        (Numeric(inside="answer"), "1008", None),
        (Choice(), "The answer is (B).", "B"),
        (Choice(), "Let me think.\nIt is Lima.", "A"),
        (Choice(), "A or B", None),
        (Exact(ignore_case=True, collapse_whitespace=True), " New  York ", "new york"),
        (Exact(), " ", None),
        (Weighted({"numeric": 1, "length": {"weight": 0.1, "maximum": 9}}), "So 1,008.", "1008"),
    ],
)
def test_a_verifier_says_which_answer_a_completion_gives(verifier, completion, answer):
    assert verifier.extract(PROBLEM, completion) == answer


def test_a_verifier_in_worker_processes_has_the_same_answers():
    verifier = Isolated(Numeric(), workers=1)
    assert verifier.extract(PROBLEM, "It is 1,008.") == "1008"
    verifier.close()
