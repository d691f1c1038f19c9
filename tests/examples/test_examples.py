"""The examples: their problems and rewards, and a few updates of those that train."""

import json
import math
import re
import sys
import tomllib
from pathlib import Path

import pytest
from loaded import loaded

from rlenv.problems import load_problems
from rlenv.stream import ProblemStream
from rlenv.verifiers import make_verifier
from rlenv.verifiers.lint import attacks, lint, report

EXAMPLES = Path(__file__).parents[2] / "examples"
RECORDS, SUMS = (f"{EXAMPLES / 'real_model' / name}" for name in ("records.py:Records", "sums.py:Sums"))


def drawn(verifier, split):
    """Return the first problems of a split."""
    stream = ProblemStream(make_verifier(verifier), split)
    return [stream[index] for index in range(300)]


def test_the_package_under_its_name_and_records_pass_lint(monkeypatch):
    """But for the rule of speed: a busy machine may pause any verdict."""
    monkeypatch.setattr(attacks, "ATTACKED", 2)
    monkeypatch.setattr(report, "SAMPLED", 6)
    folder = EXAMPLES / "rlenv-verifier-palindrome"
    points = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["entry-points"]
    (module, name) = points["rlenv.verifiers"]["palindrome"].split(":")
    for verifier in (f"{folder / module}.py:{name}", RECORDS):
        assert {finding.rule for finding in lint(make_verifier(verifier)).findings} <= {"speed"}


def test_a_name_and_a_sum_in_either_order_are_in_one_split():
    names = [{json.loads(problem.answer)["name"] for problem in drawn(RECORDS, split)} for split in ("train", "test")]
    terms = [{tuple(problem.metadata["terms"]) for problem in drawn(SUMS, split)} for split in ("train", "test")]
    for train, test in (names, terms):
        assert train and test and not train & test
    assert all(a <= b for a, b in terms[0] | terms[1])


def test_rows_of_gsm8k_ask_for_the_answer_and_lose_the_calculators_marks(tmp_path, monkeypatch):
    row = {"question": "2 nests of 3 eggs. How many? ", "answer": "2*3 = <<2*3=6>>6 eggs.\n#### 6"}
    paths = [str(tmp_path / name) for name in ("train.jsonl", "test.jsonl", "both.jsonl")]
    for path in paths[:2]:
        Path(path).write_text(json.dumps(row) + "\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["make_problems.py", *paths])
    loaded("examples/gsm8k/make_problems.py").main()
    problems = load_problems(paths[2])
    assert [problem.metadata["split"] for problem in problems] == ["train", "test"]
    assert problems[0].answer == "2*3 = 6 eggs.\n#### 6"
    verifier = make_verifier("numeric")
    judged = [verifier.verify(problems[0], text).reward for text in (problems[0].answer, "#### 7")]
    assert problems[0].prompt.startswith("2 nests of 3 eggs. How many?\n") and judged == [1.0, 0.0]


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


@pytest.mark.parametrize("env", ["CartPole-v1", "TextGen-v0"])
def test_a_few_updates_of_reinforce_run_and_print_a_finite_loss(env, capsys, monkeypatch):
    example = loaded("examples/reinforce.py")
    monkeypatch.setattr(example, "LENGTH", 3)  # of a text
    rewards = example.train(env, updates=10)
    printed = capsys.readouterr().out
    loss = float(printed.split()[3])
    assert len(rewards) == 10 and math.isfinite(loss) and loss != 0


@pytest.mark.slow
def test_reinforce_balances_the_pole_and_echoes_the_letter():
    example = loaded("examples/reinforce.py")
    assert max(example.train("CartPole-v1", updates=80)) > 400
    text = example.train("TextGen-v0", updates=100)
    assert sum(text[-10:]) / 10 > 0.8


def test_the_agents_of_long_answers_train():
    example = loaded("examples/long_answers.py")
    cls, settings = list(example.AGENTS.values())[-1]
    rewards = example.train(cls, {**settings, "num_epochs": 1, "num_minibatches": 1}, updates=1, seed=0)
    assert len(rewards) == 1 and 0 < rewards[0] < 0.3
