"""The agents balance a pole: the same classes that train a language model."""

import json

import pytest
from _rlenv_scripts.main import main
from click.testing import CliRunner


def balance(agent, seed, folder):
    args = ["train", "--env", "CartPole-v1", "--agent", agent, "--stop-reward", "475", "--seed", str(seed), "--json"]
    outcome = CliRunner().invoke(main, [*args, "--log-dir", str(folder)])
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.stdout.strip().splitlines()[-1])


def test_reinforce_with_a_baseline_balances_the_pole(tmp_path):
    result = balance("reinforce-baseline", 0, tmp_path / "run")
    assert result["eval"]["mean_reward"] >= 475
    assert result["timesteps"] <= 100_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_reinforce_with_a_baseline_balances_it_for_every_seed(seed, tmp_path):
    result = balance("reinforce-baseline", seed, tmp_path / "run")
    assert result["eval"]["mean_reward"] >= 475
    assert result["timesteps"] <= 100_000


@pytest.mark.slow
def test_reinforce_alone_balances_it_for_most_seeds(tmp_path):
    results = [balance("reinforce", seed, tmp_path / str(seed)) for seed in range(10)]
    assert sum(result["eval"]["mean_reward"] >= 475 for result in results) >= 8
