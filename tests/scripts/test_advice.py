"""A run that begins with hardly any right answer says what to try."""

from pathlib import Path

import pytest
from _rlenv_scripts.advice import on_a_hard_start
from _rlenv_scripts.main import main
from click.testing import CliRunner

FLAGS = ("--sft-steps", "--sft-examples", "--curriculum", "--group-size 16", "--verifier-arg")


def test_few_right_answers_are_followed_by_what_to_try():
    line = on_a_hard_start(0.016, 4)
    assert line.startswith("only 1.6% of the answers are right") and "\n" not in line
    assert all(flag in line for flag in FLAGS)
    assert on_a_hard_start(0.0, 4) and Path("docs/recipes.md").name in line


@pytest.mark.parametrize("rate", [None, 0.02, 0.5, 1.0])
def test_enough_right_answers_need_no_advice(rate):
    assert on_a_hard_start(rate, 4) == ""


def test_a_run_gives_the_advice_before_it_trains(tmp_path):
    small = ["--episodes", "8", "--episodes-per-update", "8", "--eval-episodes", "50", "--sft-steps", "0"]
    outcome = CliRunner().invoke(main, ["train", *small, "--log-dir", str(tmp_path / "run")])
    assert outcome.exit_code == 0, outcome.output
    before, after = outcome.stderr.replace("\n", " ").split("wrong answers alone teach nothing")
    assert "before:" in before and "after:" in after
