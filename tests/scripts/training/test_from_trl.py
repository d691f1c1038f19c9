"""What somebody who comes from TRL types first."""

import json

import pytest
from inprocess import run

SMALL = ["--sft-steps", 1, "--timesteps", 20, "--eval-episodes", 4, "--episodes-per-update", 8, "--log-dir", "run"]
FILE = ["--problems", "sums.jsonl", "--column", "prompt=question", "--column", "answer=solution"]
SOURCE = """
def right(prompts, completions, solution, **kwargs):
    return [float(said == wanted) for said, wanted in zip(completions, solution)]

def short(completions, completion_ids, trainer_state, **kwargs):
    assert trainer_state.global_step >= 0
    return [-float(len(ids)) for ids in completion_ids]

def three(completions):
    return [1.0, 1.0, 1.0]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "their_rewards.py").write_text(SOURCE)
    rows = [{"question": f"{a}+{b}=", "solution": str(a + b)} for a in range(10) for b in range(10)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param("their_rewards.py:right,their_rewards.py:short=0.5", marks=pytest.mark.slow),
        "their_rewards:right",
    ],
)
def test_functions_in_a_file_train_and_are_found_again_from_elsewhere(folder, monkeypatch, spec):
    outcome = run("train", "--verifier", spec, *FILE, *SMALL, "--json")
    assert outcome.exit_code == 0, outcome.output
    saved = json.loads((folder / "run" / "config.json").read_text())["verifier"]
    expected = spec.replace("their_rewards.py", f"{folder}/their_rewards.py")
    assert saved == expected.replace("their_rewards:", f"{folder}/their_rewards.py:")
    (folder / "else").mkdir()
    monkeypatch.chdir(folder / "else")
    assert "if you trust it, pass --trust" in run("train", "--resume", "../run", "--timesteps", 400).stderr
    outcome = run("train", "--resume", "../run", "--timesteps", 400, "--trust", "--json")
    assert outcome.exit_code == 0, outcome.output
    assert json.loads(outcome.stdout.splitlines()[-1])["timesteps"] >= 400


def test_a_configuration_may_list_functions(folder):
    names = ["their_rewards.py:right", "their_rewards.py:short=0.5"]
    (folder / "run.json").write_text(json.dumps({"verifier": names}))
    outcome = run("train", "--config", "run.json", *FILE, *SMALL)
    assert outcome.exit_code == 0, outcome.output
    header = (folder / "run" / "progress.csv").read_text().splitlines()[0].split(",")
    assert {"rollout/parts/right", "rollout/parts/short"} <= set(header)


@pytest.mark.parametrize(("workers", "count"), [(0, 4), (1, 1)])
def test_another_number_of_rewards_ends_a_run_with_one_line(folder, workers, count):
    outcome = run("train", "--verifier", "their_rewards.py:three", "--verifier-workers", workers, *FILE, *SMALL)
    assert outcome.exit_code == 2, outcome.output
    (line,) = [line for line in outcome.stderr.splitlines() if "three" in line]
    assert f"returned 3 rewards for {count} completion" in line
