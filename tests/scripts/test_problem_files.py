"""Problems from files on the command line: found again from anywhere, and one clear line where they cannot be read."""

import json
import re
import sys

import pytest
from inprocess import done, error_of, result_of, run

from rlenv.demonstrations import demonstrate
from rlenv.stream import level_of

SMALL = ["--sft-steps", 2, "--sft-examples", 8, "--timesteps", 20, "--eval-episodes", 4, "--episodes-per-update", 8]
FILE = ["--problems", "sums.jsonl", "--column", "prompt=question", "--column", "answer=target"]


def write_sums(path):
    sums = [(a, b) for a in range(10) for b in range(a + 1)]
    sides = ["train" if (a + b) % 4 else "test" for a, b in sums]
    rows = [
        {"question": f"{a}+{b}=", "target": a + b, "split": side, "level": 1 + (a > 4)}
        for (a, b), side in zip(sums, sides, strict=True)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a file of sums and a module with a reward function."""
    write_sums(tmp_path / "sums.jsonl")
    source = "def exact(prompts, completions, answer, level, **columns):\n"
    source += "    assert all(isinstance(number, int) for number in level)\n"
    source += "    return [float(said == right) for said, right in zip(completions, answer)]\n"
    (tmp_path / "plain_reward.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("plain_reward", None)


def test_a_run_on_a_file_is_evaluated_from_another_folder(folder, monkeypatch):
    given = ["--verifier", "plain_reward:exact", *FILE, "--curriculum", 0.9]
    trained = result_of(run("train", *SMALL, *given, "--log-dir", "run", "--json"))
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    evaluated = result_of(run("evaluate", "../run", "--episodes", 4, "--trust", "--json"))
    assert evaluated == trained["eval"]
    on_train = result_of(run("evaluate", "../run", "--episodes", 4, "--split", "train", "--trust", "--json"))
    assert on_train["split"] == "train"
    again = result_of(run("train", "--config", "../run/config.json", "--log-dir", "again", "--json"))
    assert again["eval"] == trained["eval"]
    for name in (folder / "run", folder / "elsewhere" / "again"):
        kwargs = json.loads((name / "checkpoint" / "agent.json").read_text())["env_kwargs"]
        assert kwargs["problems"] == str(folder / "sums.jsonl")
        assert kwargs["columns"] == {"prompt": "question", "answer": "target"}
        assert kwargs["curriculum"] == 0.9


def test_a_run_is_evaluated_on_other_problems(folder):
    result_of(run("train", *SMALL, *FILE, "--log-dir", "run", "--json"))
    (folder / "other.csv").write_text("prompt,answer,split\n1+1=,2,test\n")
    (folder / "sums.jsonl").unlink()
    assert "no file or folder" in error_of(run("evaluate", "run", "--episodes", 2))
    outcome = done("evaluate", "run", "--problems", "other.csv", "--episodes", 2)
    assert "1+1=" in outcome.output


def test_the_supervised_start_shows_problems_of_every_level(folder, monkeypatch):
    levels = set()

    def spy(task, start, count, device):
        levels.update(level_of(task.stream[index]) for index in range(start, start + count))
        return demonstrate(task, start, count, device)

    monkeypatch.setattr("_rlenv_scripts.session.demonstrate", spy)
    given = [*FILE, "--curriculum", 1.0, "--sft-steps", 1, "--sft-examples", 20, "--eval-episodes", 4]
    result_of(run("sft", *given, "--log-dir", "sft", "--json"))
    assert levels == {1, 2}


@pytest.mark.parametrize("fraction", [[], ["--test-fraction", 0]])
def test_a_file_of_four_problems_is_trained_and_evaluated_as_it_is(folder, fraction):
    (folder / "few.csv").write_text("prompt\n" + "".join(f'"{letter},:"\n' for letter in "bcef"))
    args = ["train", "--problems", "few.csv", "--verifier", "few.py:vowels", *fraction, "--timesteps", 20]
    (folder / "few.py").write_text(
        "def vowels(prompts, completions):\n    return [float('a' in c) for c in completions]\n"
    )
    outcome = run(*args, "--episodes-per-update", 8, "--log-dir", "run", "--json")
    result = result_of(outcome)
    assert (result["eval"]["split"], result["eval"]["episodes"], result["sft_steps"]) == ("train", 4, 0)
    said = (
        f"none of the 4 problems is in the test split (test_fraction={'0.0' if fraction else '0.2'}), all are in train"
    )
    assert f"{said}: the evaluation plays training problems" in outcome.stderr
    assert re.search("no warm start: FunctionVerifier has no demonstration for '.,:'$", outcome.stderr, re.MULTILINE)
    assert json.loads((folder / "run" / "config.json").read_text())["sft_steps"] == 0


def test_no_evaluation_is_made_if_none_is_asked_for(folder):
    args = ["train", *SMALL, *FILE, "--eval-episodes", 0]
    outcome = run(*args, "--log-dir", "run", "--json")
    result = result_of(outcome)
    assert (result["initial_eval"], result["eval"]) == (None, None) and result["updates"] > 0
    assert "before:" not in outcome.stderr and run("report", "run").exit_code == 0
    sft = result_of(run("sft", *FILE, "--verifier", "exact", "--sft-steps", 1, "--eval-episodes", 0, "--json"))
    assert sft["eval"] is None and sft["eval_loss"] > 0
