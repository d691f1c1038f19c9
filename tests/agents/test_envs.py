"""How long an episode may be, by whoever says it; and environments and tools of stable-baselines3."""

import gymnasium as gym
import pytest
import torch
from diagonal import diagonal
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize
from tabular import TabularPolicy, tiny_world
from time_limits import endless_envs
from tiny_models import text_envs, tiny_model

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import DAPO, PPO, DrGRPO, Reinforce, make_envs
from agents.rollouts.envs import full_id, step_limit


def poles(slots=2, **kwargs):
    return SyncVectorEnv([lambda: gym.make("CartPole-v1", **kwargs)] * slots)


ENVS = {
    "native vector": (lambda: gym.make_vec("CartPole-v1", num_envs=2), 500),
    "side by side": (lambda: gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync"), 500),
    "side by side, by hand": (poles, 500),
    "side by side, shortened": (lambda: poles(max_episode_steps=7), 7),
    "single": (lambda: make_envs(gym.make("MountainCar-v0"), 1, None), 200),
    "by id, shortened": (lambda: make_envs("CartPole-v1", 2, {"max_episode_steps": 50}), 50),
    "of stable-baselines3": (lambda: make_envs(make_vec_env("CartPole-v1", 2), 1, None), 500),
    "text": (lambda: text_envs(2), 12),
    "text, longer": (lambda: text_envs(2, max_new_tokens=20), 20),
    "unregistered": (endless_envs, None),
    "vector": (tiny_world, None),
    "without its time limit": (lambda: SyncVectorEnv([lambda: gym.make("CartPole-v1").unwrapped]), None),
}


@pytest.mark.parametrize(("make", "limit"), ENVS.values(), ids=ENVS)
def test_an_environment_says_how_long_its_episodes_may_be(make, limit):
    """Else the user is asked; and what the user says goes before it."""
    envs = make()
    assert step_limit(envs, 3, "max_steps") == 3
    if limit is None:
        with pytest.raises(ValueError, match="pass longest"):
            step_limit(envs, None, "longest")
    else:
        assert step_limit(envs, None, "max_steps") == limit


def test_agents_that_need_the_longest_episode_take_it_from_the_environment():
    pole = DrGRPO("MlpPolicy", "CartPole-v1", device="cpu")
    assert pole.longest == 500 and DrGRPO("MlpPolicy", "CartPole-v1", max_steps=90, device="cpu").longest == 90
    pole.set_env(gym.make("CartPole-v1", max_episode_steps=50))
    assert pole.longest == 50
    overlong = DAPO("MlpPolicy", "CartPole-v1", overlong_buffer=100, device="cpu")
    assert (overlong.longest, overlong.overlong_buffer) == (500, 100)
    text = {"env": "TextGen-v0", "env_kwargs": {"verifier": "arith", "max_new_tokens": 6}, "device": "cpu"}
    assert DrGRPO("tiny", **text).longest == DAPO("tiny", overlong_buffer=2, **text).longest == 6
    assert DAPO(tiny_model("gpt2"), text_envs(4, group_size=4), overlong_buffer=2, device="cpu").longest == 12
    silent = DAPO(TabularPolicy(), tiny_world(), device="cpu")
    assert silent.max_steps is None and silent.overlong_buffer == 0, "without a penalty nobody has to say"


def test_an_id_is_kept_with_the_package_that_registers_it():
    assert full_id("TextGen-v0") == full_id("rlenv:TextGen-v0") == "rlenv:TextGen-v0"
    assert full_id("CartPole-v1") == "CartPole-v1"


# Environments of stable-baselines3 train our agents, and ours are environments to stable-baselines3.


@diagonal("cls, normalized", [Reinforce, PPO, DAPO], [False, True])
def test_agents_train_in_environments_of_stable_baselines3(cls, normalized):
    venv = make_vec_env("CartPole-v1", n_envs=3, seed=0)
    venv = VecNormalize(venv) if normalized else venv
    agent = cls("MlpPolicy", venv, episodes_per_update=6, device="cpu")
    before = [p.clone() for p in agent.policy.parameters()]
    agent.learn(200)
    assert any(not torch.equal(p, q) for p, q in zip(agent.policy.parameters(), before, strict=True))
    assert agent.get_env() is venv and agent.get_vec_normalize_env() is (venv if normalized else None)
    assert agent.env.num_envs == agent.n_envs == 3
    assert not normalized or venv.obs_rms.count > 100
    assert agent.evaluate(venv, 4)[0]["episodes"] == 4


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
