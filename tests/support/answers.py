"""Answers in the form that chat models use, right and wrong: how many of them does a verifier refuse or pay?

A line of tests/verifiers/answers/NAME.jsonl is an answer to a problem:
{"prompt", "answer", "metadata" (optional), "completion", "right", "kwargs" (optional: of the verifier)}.
Those in smollm2.jsonl and sampled.jsonl were written by a model. sampled.jsonl has mistakes of several verifiers, each
with "verifier", and "open" if it has not been mended.
"""

import json
from functools import lru_cache
from pathlib import Path

from verifiers import Problem, make_verifier

FOLDER = Path(__file__).resolve().parent.parent / "verifiers" / "answers"


def answers(name):
    """Return the answers in a file."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines() if line.strip()]


def misjudged(name, cases=None, **kwargs):
    """Return the right answers that a verifier refuses and the wrong ones that it pays, each with its prompt.

    Args:
        name: of the verifier, and of the file.
        cases: the answers; None for those of the file.
        kwargs: of the verifier, for all answers.
    """
    made = lru_cache(maxsize=None)(lambda text: make_verifier(name, **json.loads(text)))
    refused, paid = [], []
    for case in answers(name) if cases is None else cases:
        verifier = made(json.dumps({**kwargs, **case.get("kwargs", {})}, sort_keys=True))
        problem = Problem(case["prompt"], case["answer"], case.get("metadata", {}))
        success = verifier.is_success(verifier.verify(problem, case["completion"]))
        if success != case["right"]:
            (paid if success else refused).append((case["prompt"], case["answer"], case["completion"]))
    return refused, paid


def assert_rates(name, refused=0.03, paid=0.01, least=100, file=None):
    """Check that a verifier refuses at most this share of the right answers, and pays this share of the wrong ones.

    The answers are those of the verifier's own file, unless `file` names another one.
    """
    cases = answers(file or name)
    right = sum(case["right"] for case in cases)
    assert len(cases) >= least
    assert min(right, len(cases) - right) >= len(cases) // 10
    wrongly_refused, wrongly_paid = misjudged(name, cases)
    assert len(wrongly_refused) <= refused * right, wrongly_refused
    assert len(wrongly_paid) <= paid * (len(cases) - right), wrongly_paid
