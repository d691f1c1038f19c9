"""How long an episode may be, by whoever says it; what is closed; and tools of stable-baselines3."""

import multiprocessing

import gymnasium as gym
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from stable_baselines3.common.evaluation import evaluate_policy
from tabular import TabularPolicy, tiny_world
from tiny_models import text_envs, tiny_model

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import DAPO, PPO, DrGRPO, Reinforce

SMALL = {"episodes_per_update": 4, "device": "cpu"}


def test_agents_that_need_the_longest_episode_take_it_from_the_environment():
    pole = DrGRPO("MlpPolicy", "CartPole-v1", device="cpu")
    assert pole.longest == 500 and DrGRPO("MlpPolicy", "CartPole-v1", max_steps=90, device="cpu").longest == 90
    pole.set_env(gym.make("CartPole-v1", max_episode_steps=50))
    assert pole.longest == 50
    text = {"env": "TextGen-v0", "env_kwargs": {"verifier": "arith", "max_new_tokens": 6}, "device": "cpu"}
    assert DrGRPO("tiny", **text).longest == DAPO("tiny", overlong_buffer=2, **text).longest == 6
    assert DAPO(tiny_model("gpt2"), text_envs(4, group_size=4), overlong_buffer=2, device="cpu").longest == 12
    silent = DAPO(TabularPolicy(), tiny_world(), device="cpu")
    assert silent.max_steps is None and silent.overlong_buffer == 0, "without a penalty nobody has to say"


def test_what_is_refused_closes_the_environment_that_it_made_and_no_other():
    agent, away = PPO("MlpPolicy", "CartPole-v1", **SMALL), {"vectorization_mode": "async"}
    env, given, before = agent.env, gym.make_vec("Acrobot-v1", 2), set(multiprocessing.active_children())
    held = []  # the errors hold the frames, and so the environment
    for call, message in (
        (lambda: PPO("MlpPolicy", "CartPole-v1", env_kwargs=away, policy_kwargs={"x": 1}, **SMALL), "argument 'x'"),
        (lambda: PPO("MlpPolicy", "CartPole-v1", env_kwargs=away, group_size=2, **SMALL), "group_size"),
        (lambda: agent.set_env("Acrobot-v1", away), "the observation space"),
        (lambda: agent.set_env(given), "the observation space"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            call()
        held.append(error.value)
        assert set(multiprocessing.active_children()) == before
    assert not given.closed and not env.closed and agent.env is env


# Environments of ours are environments to stable-baselines3.


OWN = {
    "native": lambda: gym.make_vec("CartPole-v1", num_envs=3),
    "recorded": lambda: RecordEpisodeStatistics(gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")),
    **{mode.name: lambda mode=mode: SyncVectorEnv([pole] * 3, autoreset_mode=mode) for mode in AutoresetMode},
}


def pole():
    return gym.make("CartPole-v1")


@pytest.mark.parametrize("make", OWN.values(), ids=OWN)
def test_evaluate_policy_on_the_agents_own_environment_sees_whole_episodes(make):
    agent = Reinforce("MlpPolicy", make(), episodes_per_update=4, device="cpu").learn(1)
    rewards, lengths = evaluate_policy(agent, agent.get_env(), 9, return_episode_rewards=True)
    assert len(rewards) == 9 and rewards == lengths and min(lengths) > 5, "a pole pays 1 at every step"
    assert agent.get_env().num_envs == agent.n_envs == 3
    assert agent.learn(1, reset_num_timesteps=False).num_updates == 2


def test_evaluate_policy_waits_for_verdicts_that_come_late():
    env = {"verifier": "length", "verifier_workers": 1, "problems": ["ab"], "test_fraction": 0.0, "max_new_tokens": 3}
    agent, infos = Reinforce("tiny", "TextGen-v0", env_kwargs=env, episodes_per_update=4, device="cpu"), []
    assert agent.env.metadata["late_verdicts"]
    agent.learn(1)
    note = lambda local, _: infos.append(local["info"]) if local["done"] else None  # noqa: E731
    rewards, _ = evaluate_policy(agent, agent.get_env(), 6, return_episode_rewards=True, callback=note)
    assert len(rewards) == 6 and {info["verdict_status"] for info in infos[:6]} == {"ok"}
    assert all(info["episode"]["l"] <= 3 and "terminal_observation" in info for info in infos)
    agent.env.close()
