"""The pages docs/env-*.md say what the environments are."""

import math
import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import rlenv  # noqa: F401 (registers TextGen-v0)

DOCS = Path(__file__).parents[2] / "docs"


def test_the_example_of_textgen_runs():
    [code] = re.findall(r"```py\n(.*?)```", (DOCS / "env-textgen.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, "env-textgen.md", "exec"), {})


def test_an_episode_without_a_verdict_has_the_reward_0():
    def fail(prompts, completions):
        raise RuntimeError

    env = gym.make("TextGen-v0", verifier=fail, problems=["a"], test_fraction=0.0, max_new_tokens=1, flag_errors=True)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(2)
    assert (reward, terminated, truncated, info["verdict_status"]) == (0.0, True, True, "error")


def steps_of(env_id, state, action, **kwargs):
    """Return reward and terminated of one step from a state."""
    env = gym.make(env_id, **kwargs)
    env.reset(seed=0)
    env.unwrapped.state = np.array(state, dtype=np.float64)
    return env.step(action)[1:3]


def test_cartpole_pays_and_ends_as_its_page_says():
    degrees = math.pi / 180
    assert steps_of("CartPole-v1", [0, 0, 11.9 * degrees, 0], 1) == (1.0, False)
    assert steps_of("CartPole-v1", [0, 0, 12.0 * degrees, 1.0], 1) == (1.0, True)
    assert steps_of("CartPole-v1", [2.39, 1.0, 0, 0], 1) == (1.0, True)
    assert steps_of("CartPole-v1", [2.39, 1.0, 0, 0], 1, sutton_barto_reward=True) == (-1.0, True)
    assert steps_of("CartPole-v1", [0, 0, 0, 0], 1, sutton_barto_reward=True) == (0.0, False)
    env = gym.make("CartPole-v1")
    assert np.abs([env.reset(seed=seed)[0] for seed in range(50)]).max() <= 0.05
    for action, sign in ((0, -1), (1, 1)):
        env.reset(seed=0)
        assert np.sign(env.step(action)[0][1]) == sign


def test_acrobot_pays_and_ends_as_its_page_says():
    assert steps_of("Acrobot-v1", [0.0, 0.0, 0.0, 0.0], 1) == (-1.0, False)
    assert steps_of("Acrobot-v1", [math.pi, 0.0, 0.0, 0.0], 1) == (0.0, True)  # upright
    env = gym.make("Acrobot-v1")
    env.reset(seed=0)
    assert np.abs(env.unwrapped.state).max() <= 0.1
    assert list(env.unwrapped.AVAIL_TORQUE) == [-1.0, 0.0, 1.0]


def test_mountain_car_pays_and_ends_as_its_page_says():
    assert steps_of("MountainCar-v0", [-0.5, 0.0], 1) == (-1.0, False)
    assert steps_of("MountainCar-v0", [0.49, 0.05], 2) == (-1.0, True)
    assert steps_of("MountainCar-v0", [0.49, 0.05], 2, goal_velocity=0.06) == (-1.0, False)
    starts = np.array([gym.make("MountainCar-v0").reset(seed=seed)[0] for seed in range(20)])
    assert starts[:, 0].min() >= -0.6 and starts[:, 0].max() <= -0.4 and not starts[:, 1].any()


def test_pendulum_pays_and_ends_as_its_page_says():
    for angle, velocity, torque in ((0.0, 0.0, 0.0), (2.0, 3.0, 1.5), (math.pi + 1, -1.0, -2.0)):
        reward, terminated = steps_of("Pendulum-v1", [angle, velocity], np.array([torque], dtype=np.float32))
        near = (angle + math.pi) % (2 * math.pi) - math.pi
        assert reward == pytest.approx(-(near**2 + 0.1 * velocity**2 + 0.001 * torque**2), rel=1e-5)
        assert not terminated
