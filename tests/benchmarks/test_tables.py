"""The runs of docs/results.md: their commands exist, and a call continues what an earlier one left."""

import json
import re
from pathlib import Path

import pytest
from inprocess import run
from loaded import loaded
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


@pytest.mark.parametrize("name", ["products", "smollm2-word-problems"])
def test_what_a_row_needs_is_made_once(name, monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "RUNS", tmp_path)
    file = f"{tmp_path}/{name}.jsonl"
    row = Row("", "", 1, first=re.sub(r"\S+\.jsonl", file, ROWS[name].first))
    tables.prepare(row, name)
    assert json.loads(Path(file).read_text().splitlines()[0])["prompt"]
    Path(file).unlink()
    tables.prepare(row, name)
    assert not Path(file).is_file()


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


def test_scores_are_drawn_beside_their_commands():
    page = loaded("docs/make_performance.py")
    row = {"before": [0.25, 0.5], "after": [0.75, 1.0], "processor_seconds": [60.0, 180.0], "date": "2026-01-02"}
    control = {"after": [1.0, 3.0], "steps": [10, 20], "processor_seconds": [4.0, 6.0], "date": "2026-01-02"}
    *_, line = page.text_scores({"guess": row}).splitlines()
    scores = ["0.250, 0.500", "0.750, 1.000", "1 to 3", "2 January |"]
    assert line.split(" | ")[2:] == ["[options](worlds.md#guess)", *scores]
    *_, line = page.control_scores({"acrobot": control}).splitlines()
    assert line.split(" | ")[1:3] == ["`--config configs/Acrobot-v1.yaml`", "-83.4 ± 17.2 (A2C)"]
    assert line.split(" | ")[3:] == ["2.0 (1.0 to 3.0)", "15", "5", "2 January |"]
