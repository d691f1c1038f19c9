"""Answers and what they earn: made ones in the file of a verifier, and those of a model in real.jsonl.

A row has a problem, a completion and whether that is right; `kwargs` of the verifier, and `reward` where it is a part.
"""

import json
from pathlib import Path

import pytest

from verifiers import Problem, make_verifier

FOLDER = Path(__file__).parent / "answers"
ROWS = [
    pytest.param(row.get("verifier", path.stem), row, id=f"{path.stem}-{number}")
    for path in sorted(FOLDER.glob("*.jsonl"))
    for number, row in enumerate(map(json.loads, path.read_text("utf-8").splitlines()))
]


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_an_answer_earns_what_is_kept_about_it(name, row):
    verifier = make_verifier(name, **row.get("kwargs", {}))
    verdict = verifier.verify(Problem(row["prompt"], row["answer"], row.get("metadata", {})), row["completion"])
    assert verdict.status == "ok", verdict.reason
    paid = row.get("paid", row["right"])
    assert (verdict.reward, verifier.is_success(verdict)) == (row.get("reward", float(paid)), paid), row
