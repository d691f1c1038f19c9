"""The main job, as `make demo` runs it: from demonstrations to reward."""

import json

import pytest
from _rlenv_scripts.main import main
from click.testing import CliRunner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("seed", range(5))
def test_a_language_model_learns_two_digit_addition(seed, tmp_path):
    outcome = CliRunner().invoke(main, ["train", "--seed", str(seed), "--json", "--log-dir", str(tmp_path / "run")])
    assert outcome.exit_code == 0, outcome.output
    result = json.loads(outcome.stdout.strip().splitlines()[-1])
    assert result["eval"]["episodes"] >= 1000
    assert result["initial_eval"]["success_rate"] <= 0.80
    assert result["eval"]["success_rate"] >= 0.90
