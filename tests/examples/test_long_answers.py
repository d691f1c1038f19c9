"""The example that compares VAPO with PPO: what it pays for, and that its agents train."""

import pytest
from loaded import loaded


@pytest.fixture(scope="module")
def example():
    return loaded("examples/long_answers.py")


def test_the_reward_is_the_share_of_places_that_go_on(example):
    whole = "bcda" * 8
    texts = [whole, whole[:16], "", "b" * 32, "bcd<pad>bcd", "aaaa"]
    assert example.share_in_order(["a"] * 6, texts) == [1.0, 0.5, 0.0, 1 / 32, 5 / 32, 0.0]
    assert example.share_in_order(["d", "c"], ["abc", "dab"]) == [3 / 32, 3 / 32]


def test_its_agents_train(example):
    name, (cls, settings) = list(example.AGENTS.items())[-1]
    assert settings["value_warmup"] == 4 and "4 updates" in name
    rewards = example.train(cls, {**settings, "num_epochs": 1, "num_minibatches": 1}, updates=1, seed=0)
    assert len(rewards) == 1 and 0 < rewards[0] < 0.3
