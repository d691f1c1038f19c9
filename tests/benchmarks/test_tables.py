"""The runs of docs/results.md: their commands exist, and a call continues what an earlier one left."""

import json

import pytest
from inprocess import run
from pages import check_rlenv

from rlenv._benchmarks import tables
from rlenv._benchmarks.tables import ROWS, Row


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """Return the commands that are run; each leaves the result of a run, but the second is interrupted first."""
    asked = []

    def call(words, tree, **environ):
        asked.append(words)
        folder = tmp_path / words[-1 if "--resume" in words else -2].rpartition("/")[2]
        folder.mkdir(exist_ok=True)
        if folder.name == "sums-1" and "--resume" not in words:
            (folder / "checkpoint-3").mkdir()
            raise KeyboardInterrupt
        scores = {"initial_eval": None, "eval": {"success_rate": 0.5, "mean_reward": 9.0}, "timesteps": 7}
        (folder / "result.json").write_text(json.dumps(scores))

    monkeypatch.setattr(tables, "call", call)
    monkeypatch.setattr(tables, "RUNS", tmp_path)
    monkeypatch.setattr(tables, "SCORES", tmp_path / "scores.json")
    monkeypatch.setattr(tables, "ROWS", {"sums": Row("sums", "--episodes 4", 3, "tiny")})
    monkeypatch.setattr("sys.argv", ["tables", "sums"])
    return asked


def test_an_interrupted_table_is_continued_and_what_is_finished_is_not_run_again(calls, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        tables.main()
    assert not tables.SCORES.is_file(), "a row is written when all of its seeds are there"
    assert [words[words.index("--seed") + 1] for words in calls] == ["0", "1"]
    (tmp_path / "sums-1.seconds").write_text("100")
    tables.main()
    assert ["--resume" in words for words in calls] == [False, False, True, False]
    row = json.loads(tables.SCORES.read_text())["sums"]
    assert row["before"] == [None] * 3 and row["after"] == [0.5] * 3 and row["steps"] == [7] * 3
    assert row["processor_seconds"][1] >= 100, "those before the interruption count"
    tables.main()
    assert len(calls) == 4


@pytest.mark.parametrize("name", ROWS)
def test_the_command_of_a_row_is_one(name, tmp_path):
    command, _ = check_rlenv(tables.command(ROWS[name], 0, tmp_path)[1:])
    assert command.name == "train"


def test_a_row_with_a_verifier_of_a_file_is_continued(tmp_path):
    options = "--verifier examples/real_model/sums.py:Sums --episodes-per-update 8 --sft-steps 0 --eval-episodes 2"
    row = Row("sums", f"{options} --max-new-tokens 2", 1)
    for episodes in (8, 16):
        _, *words = tables.command(row, 0, tmp_path / "sums-0")
        assert ("--resume" in words) == (episodes == 16)
        outcome = run(*words, "--episodes", episodes)
        assert outcome.exit_code == 0, outcome.output
