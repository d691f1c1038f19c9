"""Ours learn a pole and, as `make demo` runs it, the main job: the same classes train a language model."""

import pytest
from diagonal import slow
from inprocess import result_of, run


def balance(agent, seed, folder):
    given = ["--env", "CartPole-v1", "--agent", agent, "--stop-reward", 475, "--seed", seed]
    return result_of(run("train", *given, "--log-dir", folder, "--json"))


@pytest.mark.parametrize("seed", [0, *map(slow, range(1, 10))])
def test_reinforce_with_a_baseline_balances_the_pole_for_every_seed(seed, tmp_path):
    result = balance("reinforce-baseline", seed, tmp_path / "run")
    assert result["eval"]["mean_reward"] >= 475
    assert result["timesteps"] <= 100_000


@pytest.mark.slow
def test_reinforce_alone_balances_it_for_most_seeds(tmp_path):
    results = [balance("reinforce", seed, tmp_path / str(seed)) for seed in range(10)]
    assert sum(result["eval"]["mean_reward"] >= 475 for result in results) >= 8


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(5))
def test_a_language_model_learns_two_digit_addition(seed, tmp_path):
    result = result_of(run("train", "--seed", seed, "--json", "--log-dir", tmp_path / "run"))
    assert result["eval"]["episodes"] >= 1000
    assert result["initial_eval"]["success_rate"] <= 0.80
    assert result["eval"]["success_rate"] >= 0.90
