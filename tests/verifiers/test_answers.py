"""Answers and what they earn: made ones in the file of a verifier, and those of a model in real.jsonl.

A row has a problem, a completion and whether that is right, with `kwargs` of the verifier, and `reward` where it is a
part; or the `vote` that the completion is for in a majority; or the `error` of a reference that cannot be judged by.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rlenv.verifiers import Problem, make_verifier
from rlenv.verifiers.answer import PLACES, answer_in, boxes
from rlenv.verifiers.base import is_success
from rlenv.verifiers.numbers import first_number, last_number, leading_number
from rlenv.verifiers.sandbox.run import unavailable
from rlenv.verifiers.text import collapsed, conclusion, last_line

FOLDER, AT_ONCE = Path(__file__).parent / "answers", 10
ROWS = [
    pytest.param(path.stem, rows[start : start + AT_ONCE], id=f"{path.stem}-{start}")
    for path in sorted(FOLDER.glob("*.jsonl"))
    for rows in [[json.loads(line) for line in path.read_text("utf-8").splitlines()]]
    for start in range(0, len(rows), AT_ONCE)
]


def earns_what_is_kept(verifier, row):
    completion, problem = row["completion"], Problem(row["prompt"], row["answer"], row.get("metadata", {}))
    if "vote" in row:
        return verifier.extract(problem, completion) == row["vote"]
    verdict = verifier.verify(problem, completion)
    if "error" in row:
        return (verdict.reward, verdict.status) == (0.0, "error") and row["error"] in verdict.reason
    paid = row.get("paid", row["right"])
    reward = row.get("reward", float(paid))
    return (verdict.status, verdict.reward, is_success(verifier, verdict)) == ("ok", reward, paid)


@pytest.mark.parametrize(("name", "rows"), ROWS)
def test_an_answer_earns_what_is_kept_about_it(name, rows):
    if name == "code" and unavailable():
        pytest.skip("see test_sandbox.py")
    made = [(make_verifier(row.get("verifier", name), **row.get("kwargs", {})), row) for row in rows]
    judge = ThreadPoolExecutor(AT_ONCE).map if name == "code" else map  # programs wait for their sandboxes
    assert [
        row
        for (_, row), right in zip(made, judge(lambda pair: earns_what_is_kept(*pair), made), strict=True)
        if not right
    ] == []


@pytest.mark.parametrize(
    "part",
    [
        "\\boxed{", "}", "{", "<answer>", "answer is ", "answer", "is ", "= ", "####", "<think>", "\n", "YES ", "1",
        "1,", "1,000", "43 ", "3/", "- ", "$", "\\frac{1}", "is 43 + ", "\u00a0", "**", "4 km/", "\\text{", "1 1/",
    ],
)  # fmt: skip
def test_a_long_text_is_read_without_backtracking(part):
    for place in PLACES:
        answer_in(part * (50_000 // len(part)), place, first_number)
    for read in (first_number, last_number, leading_number, last_line, collapsed, boxes, conclusion):
        read(part * (20_000 // len(part)))


def test_a_last_line_whose_beginning_is_cut_off_is_no_answer():
    found = [answer_in(text, "last", lambda line: line[0]) for text in ("b" + "a" * 20_000, "b" * 20_000 + "\na")]
    assert found == [None, "a"]
    nested = '{"a":' * 20_000 + "{}"  # the part that is read begins with a":
    assert make_verifier("choice").verify(Problem("Which?", "A"), nested).reward == 0
