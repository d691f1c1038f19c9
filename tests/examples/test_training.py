"""The examples that train: a few updates print a finite loss, and REINFORCE on one page learns."""

import math

import pytest
from loaded import loaded


@pytest.mark.parametrize("env", ["CartPole-v1", "TextGen-v0"])
def test_a_few_updates_of_reinforce_run_and_print_a_finite_loss(env, capsys, monkeypatch):
    example = loaded("examples/reinforce.py")
    monkeypatch.setattr(example, "LENGTH", 3)  # of a text
    rewards = example.train(env, updates=10)
    printed = capsys.readouterr().out
    loss = float(printed.split()[3])
    assert len(rewards) == 10 and math.isfinite(loss) and loss != 0


@pytest.mark.slow
def test_reinforce_balances_the_pole_and_echoes_the_letter():
    example = loaded("examples/reinforce.py")
    assert max(example.train("CartPole-v1", updates=80)) > 400
    text = example.train("TextGen-v0", updates=100)
    assert sum(text[-10:]) / 10 > 0.8


def test_the_agents_of_long_answers_train():
    example = loaded("examples/long_answers.py")
    cls, settings = list(example.AGENTS.values())[-1]
    rewards = example.train(cls, {**settings, "num_epochs": 1, "num_minibatches": 1}, updates=1, seed=0)
    assert len(rewards) == 1 and 0 < rewards[0] < 0.3
