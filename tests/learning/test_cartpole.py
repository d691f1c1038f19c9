"""The agents balance a pole: the same classes that train a language model."""

import pytest
from inprocess import result_of, run


def balance(agent, seed, folder):
    given = ["--env", "CartPole-v1", "--agent", agent, "--stop-reward", 475, "--seed", seed]
    return result_of(run("train", *given, "--log-dir", folder, "--json"))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_reinforce_with_a_baseline_balances_it_for_every_seed(seed, tmp_path):
    result = balance("reinforce-baseline", seed, tmp_path / "run")
    assert result["eval"]["mean_reward"] >= 475
    assert result["timesteps"] <= 100_000


@pytest.mark.slow
def test_reinforce_alone_balances_it_for_most_seeds(tmp_path):
    results = [balance("reinforce", seed, tmp_path / str(seed)) for seed in range(10)]
    assert sum(result["eval"]["mean_reward"] >= 475 for result in results) >= 8
