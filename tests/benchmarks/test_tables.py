"""The runs of docs/results.md: their commands exist, and a call continues what an earlier one left."""

import pytest
from inprocess import run
from pages import check_rlenv

from rlenv._benchmarks import tables
from rlenv._benchmarks.tables import ROWS, Row


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
