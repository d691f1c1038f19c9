"""The main job, as `make demo` runs it: from demonstrations to reward."""

import pytest
from inprocess import result_of, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("seed", range(5))
def test_a_language_model_learns_two_digit_addition(seed, tmp_path):
    result = result_of(run("train", "--seed", seed, "--json", "--log-dir", tmp_path / "run"))
    assert result["eval"]["episodes"] >= 1000
    assert result["initial_eval"]["success_rate"] <= 0.80
    assert result["eval"]["success_rate"] >= 0.90
