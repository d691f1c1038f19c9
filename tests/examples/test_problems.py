"""The examples' verifiers and problems: what they pay for, and that training and test share nothing."""

import json
import re
import sys
import tomllib
from pathlib import Path

from loaded import loaded

from rlenv.problems import load_problems
from rlenv.stream import ProblemStream
from verifiers import make_verifier
from verifiers.lint import lint

EXAMPLES = Path(__file__).parents[2] / "examples"
RECORDS, SUMS = (f"{EXAMPLES / 'real_model' / name}" for name in ("records.py:Records", "sums.py:Sums"))


def drawn(verifier, split):
    """Return the first problems of a split."""
    stream = ProblemStream(make_verifier(verifier), split)
    return [stream[index] for index in range(300)]


def test_the_example_package_passes_lint_under_its_name():
    folder = EXAMPLES / "rlenv-verifier-palindrome"
    points = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["entry-points"]
    (module, name) = points["rlenv.verifiers"]["palindrome"].split(":")
    assert lint(make_verifier(f"{folder / module}.py:{name}")).passed


def test_records_pass_lint_and_no_name_is_in_both_splits():
    names = [{json.loads(problem.answer)["name"] for problem in drawn(RECORDS, split)} for split in ("train", "test")]
    assert names[0] and names[1] and not names[0] & names[1]
    assert lint(make_verifier(RECORDS)).passed


def test_a_sum_is_in_one_split_in_either_order():
    terms = [{tuple(problem.metadata["terms"]) for problem in drawn(SUMS, split)} for split in ("train", "test")]
    assert terms[0] and terms[1] and not terms[0] & terms[1] and all(a <= b for a, b in terms[0] | terms[1])


def test_the_steps_of_a_word_problem_are_right_and_no_question_is_in_both_splits(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["make_problems.py", str(tmp_path / "p.jsonl"), "--count", "300"])
    loaded("examples/word_problems/make_problems.py").main()
    asked = {"train": set(), "test": set()}
    for problem in load_problems(tmp_path / "p.jsonl"):
        steps, last = problem.answer.split(" #### ")
        for left, sign, right, result in re.findall(r"(\d+)([+-])(\d+)=(\d+)", steps):
            assert int(result) == (int(left) + int(right) if sign == "+" else int(left) - int(right))
        assert last == result and int(last) > 0
        bare = re.sub(r"^\w+|(?<=\d )\w+", "", problem.prompt[0]["content"])  # without the name and the things
        asked[problem.metadata["split"]].add(bare)
    assert asked["test"] and asked["train"] and not asked["train"] & asked["test"]


def test_the_reward_of_word_problems_reads_the_last_number_of_texts_and_of_messages():
    correct = loaded("examples/word_problems/rewards.py").correct
    assert correct(["1+1=2 #### 2", "2", "#### 3", "#### 2 or 3", ""], answer=["1+1=2 #### 2"] * 5) == [1, 0, 0, 0, 0]
    assert correct([[{"role": "assistant", "content": "#### 2"}]], answer=["#### 2"]) == [1]


def test_the_reward_of_long_answers_is_the_share_of_places_that_go_on():
    share = loaded("examples/long_answers.py").share_in_order
    whole = "bcda" * 8
    texts = [whole, whole[:16], "", "b" * 32, "bcd<pad>bcd", "aaaa"]
    assert share(["a"] * 6, texts) == [1.0, 0.5, 0.0, 1 / 32, 5 / 32, 0.0]
    assert share(["d", "c"], ["abc", "dab"]) == [3 / 32, 3 / 32]
