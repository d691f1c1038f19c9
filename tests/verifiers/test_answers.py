"""Answers and what they earn: made ones in the file of a verifier, and those of a model in real.jsonl.

A row has a problem, a completion and whether that is right, with `kwargs` of the verifier, and `reward` where it is a
part; or the `vote` that the completion is for in a majority; or the `error` of a reference that cannot be judged by.
"""

import json
from pathlib import Path

import pytest

from verifiers import Problem, make_verifier
from verifiers.sandbox.run import unavailable

FOLDER = Path(__file__).parent / "answers"
ROWS = [
    pytest.param(row.get("verifier", path.stem), row, id=f"{path.stem}-{number}")
    for path in sorted(FOLDER.glob("*.jsonl"))
    for number, row in enumerate(map(json.loads, path.read_text("utf-8").splitlines()))
]


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_an_answer_earns_what_is_kept_about_it(name, row):
    if name == "code" and unavailable():
        pytest.skip("see test_sandbox.py")
    verifier, completion = make_verifier(name, **row.get("kwargs", {})), row["completion"]
    problem = Problem(row["prompt"], row["answer"], row.get("metadata", {}))
    if "vote" in row:
        assert verifier.extract(problem, completion) == row["vote"]
        return
    verdict = verifier.verify(problem, completion)
    if "error" in row:
        assert (verdict.reward, verdict.status) == (0.0, "error") and row["error"] in verdict.reason
        return
    assert verdict.status == "ok", verdict.reason
    paid = row.get("paid", row["right"])
    assert (verdict.reward, verifier.is_success(verdict)) == (row.get("reward", float(paid)), paid), row
