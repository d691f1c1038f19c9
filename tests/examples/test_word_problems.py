"""The example of word problems: its answers are right, its splits share no numbers, and its reward reads them."""

import re
import sys
from pathlib import Path

import pytest
from loaded import loaded

from rlenv.problems import load_problems
from verifiers import make_verifier

FOLDER = Path(__file__).parents[2] / "examples" / "word_problems"


def made(monkeypatch, path, *options):
    """Return what the script writes."""
    monkeypatch.setattr(sys, "argv", ["make_problems.py", str(path), "--count", "300", *options])
    loaded("examples/word_problems/make_problems.py").main()
    return load_problems(path)


@pytest.fixture
def problems(tmp_path, monkeypatch):
    return made(monkeypatch, tmp_path / "p.jsonl")


def test_every_step_of_an_answer_is_right_and_follows_from_the_question(problems):
    for problem in problems:
        steps, last = problem.answer.split(" #### ")
        for left, sign, right, result in re.findall(r"(\d+)([+-])(\d+)=(\d+)", steps):
            assert int(result) == (int(left) + int(right) if sign == "+" else int(left) - int(right))
        assert last == result and int(last) > 0
        assert set(re.findall(r"\d+", problem.prompt[0]["content"])) <= set(re.findall(r"\d+", steps))


def test_a_question_in_one_split_is_not_in_the_other_with_another_name(problems):
    asked = {"train": set(), "test": set()}
    for problem in problems:
        bare = re.sub(r"^\w+|(?<=\d )\w+", "", problem.prompt[0]["content"])  # without the name and the things
        asked[problem.metadata["split"]].add(bare)
    assert len(asked["test"]) > 20 and len(asked["train"]) > 100
    assert not asked["train"] & asked["test"]


def test_the_reward_reads_the_last_number_of_texts_and_of_messages():
    verifier = make_verifier(f"{FOLDER / 'rewards.py'}:correct")
    correct = loaded("examples/word_problems/rewards.py").correct
    assert verifier.name == "correct"
    assert correct(["1+1=2 #### 2", "2", "#### 3", "#### 2 or 3", ""], answer=["1+1=2 #### 2"] * 5) == [1, 0, 0, 0, 0]
    assert correct([[{"role": "assistant", "content": "#### 2"}]], answer=["#### 2"]) == [1]
