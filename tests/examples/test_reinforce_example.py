"""examples/reinforce.py: short, public names only, and it learns."""

import math

import pytest
from loaded import loaded


@pytest.fixture(scope="module")
def example():
    return loaded("examples/reinforce.py")


@pytest.mark.parametrize("env", ["CartPole-v1", "TextGen-v0"])
def test_a_few_updates_run_and_print_a_finite_loss(example, env, capsys, monkeypatch):
    monkeypatch.setattr(example, "LENGTH", 3)  # of a text
    rewards = example.train(env, updates=10)
    printed = capsys.readouterr().out
    assert "<pad>" not in printed and (env != "TextGen-v0" or all(prompt in printed for prompt in example.PROMPTS))
    loss = printed.split()[3]
    assert len(rewards) == 10 and math.isfinite(float(loss))
    assert float(loss) != 0


@pytest.mark.slow
def test_it_balances_the_pole_and_echoes_the_letter(example):
    assert max(example.train("CartPole-v1", updates=80)) > 400
    text = example.train("TextGen-v0", updates=100)
    assert sum(text[-10:]) / 10 > 0.8
