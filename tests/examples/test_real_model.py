"""The jobs for a real model: what their verifiers pay for, and that training and test share no names."""

import json
from pathlib import Path

import pytest

from rlenv.stream import ProblemStream
from verifiers import Problem, make_verifier
from verifiers.lint import lint

RECORDS = Path(__file__).parents[2] / "examples" / "real_model" / "records.py"
RIGHT = '{"name": "Vera", "age": 29, "city": "Vienna"}'
VERA = Problem("Vera from Vienna is 29.", RIGHT)


@pytest.fixture(scope="module")
def records():
    return make_verifier(f"{RECORDS}:Records")


@pytest.fixture(scope="module")
def drawn(records):
    """Return the first problems of both splits."""
    streams = {split: ProblemStream(records, split) for split in ("train", "test")}
    return {split: [stream[index] for index in range(300)] for split, stream in streams.items()}


ANSWERS = {  # all for the record, 0.2 for each right value of another object, nothing for anything else
    "the record": (RIGHT, 1.0),
    "in lines": ('{\n  "name": "Vera",\n  "age": 29,\n  "city": "Vienna"\n}', 1.0),
    "in another order": ('{"city":"Vienna","age":29,"name":"Vera"}', 1.0),
    "white space around": (f" {RIGHT}\n", 1.0),
    "wrong value": (RIGHT.replace("29", "30"), 0.4),
    "age as text": (RIGHT.replace("29", '"29"'), 0.4),
    "extra key": (RIGHT.replace("}", ', "job": "cook"}'), 0.6),
    "key missing": ('{"name": "Vera", "age": 29}', 0.4),
    "all wrong": ('{"name": "Vincent", "age": 30, "city": "Rome"}', 0.0),
    "fence": (f"```json\n{RIGHT}\n```", 0.0),
    "words after": (f"{RIGHT}\n\nThis JSON is about Vera.", 0.0),
    "cut": (RIGHT[:-1], 0.0),
    "key twice": (RIGHT.replace("{", '{"name": "Vera", '), 0.0),
    "list": (f"[{RIGHT}]", 0.0),
    "deep": ("[" * 50_000, 0.0),
}


@pytest.mark.parametrize(("completion", "reward"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_earns_all_a_part_or_nothing(records, completion, reward):
    verdict = records.verify(VERA, completion)
    assert verdict.reward == pytest.approx(reward) and records.is_success(verdict) == (reward == 1)
    if reward == 1:
        assert records.extract(VERA, completion) == records.extract(VERA, RIGHT)


def test_no_name_of_a_test_problem_is_in_a_training_problem(drawn):
    names = {split: {json.loads(problem.answer)["name"] for problem in drawn[split]} for split in drawn}
    assert len(names["test"]) >= 8 and len(names["train"]) >= 30
    assert not names["train"] & names["test"]


def test_it_passes_lint(records):
    report = lint(records)
    assert report.passed, report
