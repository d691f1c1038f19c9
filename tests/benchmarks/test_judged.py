"""The command that judges public data, on rows that were made in the form of each file."""

import gzip
import hashlib
import json

import pytest

from rlenv._benchmarks import judged
from rlenv._benchmarks.public_data import DATA
from rlenv.verifiers import make_verifier

CHECK = "def check(candidate):\n    assert candidate(2, 3) == 5\n    assert candidate(0, 0) == 0\n"
ADD = {
    "task_id": "HumanEval/0", "prompt": 'def add(a, b):\n    """Add."""\n', "entry_point": "add",
    "canonical_solution": "    return a + b\n", "test": CHECK,
}  # fmt: skip
FILES = {  # a file of each data set, as rows
    "GSM8K": [
        {"question": "A pen costs 3 of Ann's 20 coins. What do 6 cost?", "answer": "3 * 6 = <<3*6=18>>18\n#### 18"},
        {"question": "How many seats do 12 cars with 100 seats each have?", "answer": "It is 12 * 100.\n#### 1,200"},
    ],
    "GSM8K, OpenAI's four models": [
        {
            "question": "What do 6 pens of 3 coins cost?", "ground_truth": "3 * 6 = 18\nA: 18",
            "6b_finetuning": {"is_correct": True, "solution": "6 * 3 = 18\n#### 18"},
            "175b_verification": {"is_correct": False, "solution": "6 + 3 = 9\n#### 9"},
        }
    ],
    "GSM8K, ToRA": [
        {"question": "How many?", "gt": "1,200", "pred": ["1200.0"], "code": ["It is $\\boxed{1200.0}$."]},
        {"question": "How many?", "gt": "7", "pred": ["8"], "code": ["It is $\\boxed{8}$."]},
    ],
    "AIME 2024": [{"problem": "Find n.", "solution": "So n is $\\boxed{204}$.", "answer": "204"}],
    "MATH, test": [
        {"problem": "What is one half?", "solution": "It is $\\boxed{\\frac{1}{2}}$."},
        {"problem": "What is the diagonal of a square of side 3?", "solution": "It is $\\boxed{3\\sqrt{2}}$."},
        {"problem": "Is 12 even or odd?", "solution": "It is $\\boxed{\\text{even}}$."},
        {"problem": "Is 13 even or odd?", "solution": "It is $\\boxed{\\text{odd}}$."},
    ],
    "MATH-500": [{"problem": "Solve.", "solution": "We get $\\boxed{-4}$.", "answer": "-4"}],
    "MATH, Qwen2.5-Math": [
        {"question": "What is 2 + 2?", "gt": "4", "code": ["\\boxed{4}", "\\boxed{5}"], "score": [True, False]}
    ],
    "MMLU STEM": [{"question": "Peru's capital?", "choices": ["Quito", "Lima", "Bogota", "La Paz"], "answer": 1}],
    "HumanEval": [ADD],
    "HumanEval, Reflexion": [
        ADD | {"solution": "def add(a, b):\n    return a + b\n", "is_solved": True},
        ADD | {"solution": "    return a - b", "is_solved": False},
    ],
    "MBPP": [
        {
            "text": "Write a function that adds.", "code": "def add(a, b):\r\n    return a + b", "test_setup_code": "",
            "test_list": ["assert add(2, 3) == 5"],
        },
        {"text": "No form of ours.", "code": "x = 1", "test_setup_code": "", "test_list": ["assert x == 1"]},
    ],
}  # fmt: skip
MISSED = {("MBPP", "reference"): 1}  # tests without a call


def written(folder, name, monkeypatch):
    """Write the rows of a data set into its first file, and make that its only source."""
    data = DATA[name]
    content = "".join(json.dumps(row) + "\n" for row in FILES[name]).encode()
    source = data.sources[0]
    content = gzip.compress(content) if source.path.endswith(".gz") else content
    source = source._replace(blob=hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())
    place = folder / source.repository / source.path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    monkeypatch.setitem(DATA, name, data._replace(sources=[source]))
    return DATA[name]


@pytest.mark.parametrize("name", FILES)
def test_verdicts_on_rows_of_each_file(name, tmp_path, monkeypatch):
    data = written(tmp_path, name, monkeypatch)
    result = judged.judge(name, make_verifier(data.verifier), data.read(tmp_path))
    assert result["rows"] == len(FILES[name])
    for kind, (paid, total) in result["counts"].items():
        assert total > 0
        assert paid == (total - MISSED.get((name, kind), 0) if judged.KINDS[kind] else 0), kind
    assert {kind.split()[0] for kind in result["counts"]} <= {"reference", "stated", "own", "wrong", "echo", "labelled"}
