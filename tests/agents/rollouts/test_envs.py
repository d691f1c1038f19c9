"""How long an episode may be, by whoever says it."""

from __future__ import annotations

import gymnasium as gym
import pytest
from gymnasium.vector import SyncVectorEnv
from stable_baselines3.common.env_util import make_vec_env
from tabular import TabularPolicy, tiny_world
from time_limits import endless_envs
from tiny_models import text_envs, tiny_model

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import DAPO, DrGRPO, make_envs
from agents.rollouts.envs import full_id, step_limit

ENVS = {
    "native vector": (lambda: gym.make_vec("CartPole-v1", num_envs=2), 500),
    "side by side": (lambda: gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync"), 500),
    "side by side, by hand": (lambda: SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2), 500),
    "side by side, shortened": (lambda: SyncVectorEnv([lambda: gym.make("CartPole-v1", max_episode_steps=7)]), 7),
    "single": (lambda: make_envs(gym.make("MountainCar-v0"), 1, None), 200),
    "by id, shortened": (lambda: make_envs("CartPole-v1", 2, {"max_episode_steps": 50}), 50),
    "of stable-baselines3": (lambda: make_envs(make_vec_env("CartPole-v1", 2), 1, None), 500),
    "text": (lambda: text_envs(2), 12),
    "text, longer": (lambda: text_envs(2, max_new_tokens=20), 20),
}
SILENT = {
    "unregistered": endless_envs,
    "vector": tiny_world,
    "without its time limit": lambda: SyncVectorEnv([lambda: gym.make("CartPole-v1").unwrapped]),
}


@pytest.mark.parametrize("name", ENVS)
def test_an_environment_says_how_long_its_episodes_may_be(name: str) -> None:
    """And what the user says goes before it."""
    make, limit = ENVS[name]
    envs = make()
    assert (step_limit(envs, None, "max_steps"), step_limit(envs, 3, "max_steps")) == (limit, 3)


@pytest.mark.parametrize("name", SILENT)
def test_an_environment_that_does_not_say_is_asked_about(name: str) -> None:
    with pytest.raises(ValueError, match=r"^the environment does not say how long an episode may be: pass longest$"):
        step_limit(SILENT[name](), None, "longest")
    assert step_limit(SILENT[name](), 9, "longest") == 9


def test_agents_that_need_the_longest_episode_take_it_from_the_environment() -> None:
    assert DrGRPO("MlpPolicy", "CartPole-v1", device="cpu").longest == 500
    assert DrGRPO("MlpPolicy", "CartPole-v1", max_steps=90, device="cpu").longest == 90
    pole = DAPO("MlpPolicy", "CartPole-v1", overlong_buffer=100, device="cpu")
    assert (pole.longest, pole.overlong_buffer) == (500, 100)
    text = {"env": "TextGen-v0", "env_kwargs": {"verifier": "arith", "max_new_tokens": 6}, "device": "cpu"}
    assert DrGRPO("tiny", **text).longest == 6
    assert DAPO("tiny", overlong_buffer=2, **text).longest == 6
    assert DAPO(tiny_model("gpt2"), text_envs(4, group_size=4), overlong_buffer=2, device="cpu").longest == 12


def test_without_an_overlong_penalty_nobody_has_to_say() -> None:
    agent = DAPO(TabularPolicy(), tiny_world(), device="cpu")
    assert agent.max_steps is None and agent.overlong_buffer == 0


def test_an_id_is_kept_with_the_package_that_registers_it() -> None:
    assert full_id("TextGen-v0") == full_id("rlenv:TextGen-v0") == "rlenv:TextGen-v0"
    assert full_id("CartPole-v1") == "CartPole-v1"
