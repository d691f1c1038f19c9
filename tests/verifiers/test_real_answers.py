"""Verifiers still say what docs/verdicts/ keeps about answers of a real model."""

import json
from pathlib import Path

import pytest

from verifiers import Problem, make_verifier
from verifiers.isolation.sandbox import run as sandbox

DATA = Path(__file__).parents[2] / "docs" / "verdicts"
PROBLEMS, ANSWERS, READER = (
    [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").split("\n") if line]
    for name in ("problems", "answers", "reader")
)
READ = [ANSWERS[row["answer"]] for row in READER]


def pays(name, row, text):
    reference = f"\\text{{{row['answer']}}}" if (row["family"], name) == ("words", "math") else row["answer"]
    verifier = make_verifier(name)
    verdict = verifier.verify(Problem(row["prompt"], reference, row.get("metadata", {})), text)
    assert verdict.status == "ok", (row, verdict)
    return verifier.is_success(verdict)


def assert_kept(answers):
    for answer in answers:
        row = PROBLEMS[answer["problem"]]
        assert {name: pays(name, row, answer["text"]) for name in answer["paid"]} == answer["paid"], answer


def test_verifiers_still_say_what_is_kept_about_a_sample():
    assert_kept([answer for answer in READ if "code" not in answer["paid"]][::8])


@pytest.mark.slow
@pytest.mark.skipif(bool(sandbox.unavailable()), reason="see test_sandbox.py")
def test_verifiers_still_say_what_is_kept_about_all_answers():
    assert_kept(ANSWERS)
