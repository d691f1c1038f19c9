"""The jobs for a real model: what their verifiers pay for, and that training and test share no names."""

import json
from pathlib import Path

import pytest

from rlenv.problems.stream import ProblemStream
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


@pytest.mark.parametrize(
    "completion",
    [
        RIGHT,
        '{\n  "name": "Vera",\n  "age": 29,\n  "city": "Vienna"\n}',
        '{"city":"Vienna","age":29,"name":"Vera"}',
        f" {RIGHT}\n",
    ],
)
def test_the_record_earns_all_in_any_order_and_with_any_white_space(records, completion):
    verdict = records.verify(VERA, completion)
    assert verdict.reward == 1.0 and records.is_success(verdict)
    assert records.extract(VERA, completion) == records.extract(VERA, RIGHT)


@pytest.mark.parametrize(
    ("completion", "right"),
    [
        (RIGHT.replace("29", "30"), 2),
        (RIGHT.replace("29", '"29"'), 2),
        (RIGHT.replace("}", ', "job": "cook"}'), 3),
        ('{"name": "Vera", "age": 29}', 2),
        ('{"name": "Vincent", "age": 30, "city": "Rome"}', 0),
    ],
    ids=["wrong value", "age as text", "extra key", "key missing", "all wrong"],
)
def test_another_object_earns_a_part_for_each_right_value_and_is_no_success(records, completion, right):
    verdict = records.verify(VERA, completion)
    assert verdict.reward == pytest.approx(0.2 * right) and not records.is_success(verdict)


@pytest.mark.parametrize(
    "completion",
    [
        f"```json\n{RIGHT}\n```",
        f"{RIGHT}\n\nThis JSON is about Vera.",
        RIGHT[:-1],
        RIGHT.replace("{", '{"name": "Vera", '),
        f"[{RIGHT}]",
        "[" * 50_000,
    ],
    ids=["fence", "words after", "cut", "key twice", "list", "deep"],
)
def test_what_is_not_one_json_object_and_nothing_else_earns_nothing(records, completion):
    assert records.verify(VERA, completion).reward == 0.0


def test_no_name_of_a_test_problem_is_in_a_training_problem(drawn):
    names = {split: {json.loads(problem.answer)["name"] for problem in drawn[split]} for split in drawn}
    assert len(names["test"]) >= 8 and len(names["train"]) >= 30
    assert not names["train"] & names["test"]


def test_it_passes_lint(records):
    report = lint(records)
    assert report.passed, report
