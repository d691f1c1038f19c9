"""How long an episode may be, by whoever says it; and environments of stable-baselines3."""

from dataclasses import fields

import gymnasium as gym
import pytest
import torch
from counting_env import CountingEnv, CountingPolicy, Ledger, counting_envs
from diagonal import diagonal
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from tabular import TabularPolicy, tiny_world
from time_limits import endless_envs
from tiny_models import text_envs, tiny_model

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import DAPO, PPO, RLOO, Collector, DrGRPO, Reinforce, make_envs
from agents.rollout import Rollout
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
def test_an_environment_says_how_long_its_episodes_may_be(name):
    """And what the user says goes before it."""
    make, limit = ENVS[name]
    envs = make()
    assert (step_limit(envs, None, "max_steps"), step_limit(envs, 3, "max_steps")) == (limit, 3)


@pytest.mark.parametrize("name", SILENT)
def test_an_environment_that_does_not_say_is_asked_about(name):
    with pytest.raises(ValueError, match=r"^the environment does not say how long an episode may be: pass longest$"):
        step_limit(SILENT[name](), None, "longest")
    assert step_limit(SILENT[name](), 9, "longest") == 9


def test_agents_that_need_the_longest_episode_take_it_from_the_environment():
    assert DrGRPO("MlpPolicy", "CartPole-v1", device="cpu").longest == 500
    assert DrGRPO("MlpPolicy", "CartPole-v1", max_steps=90, device="cpu").longest == 90
    pole = DAPO("MlpPolicy", "CartPole-v1", overlong_buffer=100, device="cpu")
    assert (pole.longest, pole.overlong_buffer) == (500, 100)
    text = {"env": "TextGen-v0", "env_kwargs": {"verifier": "arith", "max_new_tokens": 6}, "device": "cpu"}
    assert DrGRPO("tiny", **text).longest == 6
    assert DAPO("tiny", overlong_buffer=2, **text).longest == 6
    assert DAPO(tiny_model("gpt2"), text_envs(4, group_size=4), overlong_buffer=2, device="cpu").longest == 12


def test_without_an_overlong_penalty_nobody_has_to_say():
    agent = DAPO(TabularPolicy(), tiny_world(), device="cpu")
    assert agent.max_steps is None and agent.overlong_buffer == 0


def test_an_id_is_kept_with_the_package_that_registers_it():
    assert full_id("TextGen-v0") == full_id("rlenv:TextGen-v0") == "rlenv:TextGen-v0"
    assert full_id("CartPole-v1") == "CartPole-v1"


# Environments of stable-baselines3 train our agents, and ours are environments to stable-baselines3.


CPU = torch.device("cpu")
TEXT = {"verifier": "arith", "verifier_kwargs": {"digits": 1}}
MODES = list(AutoresetMode)


def leaves(value):
    return list(value.values()) if isinstance(value, dict) else [] if value is None else [value]


def assert_same(ours, theirs):
    for entry in fields(Rollout):
        pair = getattr(ours, entry.name), getattr(theirs, entry.name)
        for one, other in zip(*map(leaves, pair), strict=True):
            assert one.dtype == other.dtype and torch.equal(one.nan_to_num(-1), other.nan_to_num(-1)), entry.name


# Theirs for our agents.


@pytest.mark.parametrize("slots", [1, 3])
def test_a_rollout_is_that_of_gymnasiums_vector_environment(slots):
    lengths = [2 + i % 4 for i in range(60)]
    ledger = Ledger(lengths)
    theirs = make_envs(DummyVecEnv([lambda: CountingEnv(ledger)] * slots), 1, None)
    ours = counting_envs(slots, AutoresetMode.SAME_STEP, lengths)
    rollouts = [Collector(envs, CPU).collect(CountingPolicy(), 12) for envs in (theirs, ours)]
    assert rollouts[0].truncated.any() and rollouts[0].terminated.any()
    assert_same(*rollouts)


def test_text_comes_with_its_verdicts_and_prompts():
    make = lambda: gym.make("TextGen-v0", **TEXT)  # noqa: E731
    theirs = make_envs(DummyVecEnv([make] * 2), 1, None)
    ours = SyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    rollouts = []
    for envs in (theirs, ours):
        collector = Collector(envs, CPU)
        collector.seed(3)
        policy = Reinforce("tiny", envs, device="cpu").policy
        rollouts.append(collector.collect(policy, 8, torch.Generator().manual_seed(0)))
        rollouts[-1].truncated[:] = False  # they keep it only where the episode did not terminate as well
    assert not rollouts[0].success.isnan().any()
    assert_same(*rollouts)


@diagonal("cls, normalized", [Reinforce, PPO, DAPO], [False, True])
def test_agents_train_on_them(cls, normalized):
    venv = make_vec_env("CartPole-v1", n_envs=3, seed=0)
    venv = VecNormalize(venv) if normalized else venv
    agent = cls("MlpPolicy", venv, episodes_per_update=6, device="cpu")
    before = [p.clone() for p in agent.policy.parameters()]
    agent.learn(200)
    assert any(not torch.equal(p, q) for p, q in zip(agent.policy.parameters(), before, strict=True))
    assert agent.get_env() is venv and agent.get_vec_normalize_env() is (venv if normalized else None)
    assert agent.env.num_envs == agent.n_envs == 3
    assert not normalized or venv.obs_rms.count > 100
    figures, _ = agent.evaluate(venv, 4)
    assert figures["episodes"] == 4


def test_groups_on_them_are_refused():
    venv = DummyVecEnv([lambda: gym.make("TextGen-v0", group_size=4, **TEXT)] * 2)
    with pytest.raises(ValueError, match="group_size=4 needs slots that share their groups"):
        RLOO("tiny", venv, device="cpu")


# Ours for their tools.


@pytest.mark.parametrize("name", ["native", *MODES, "recorded"])
def test_evaluate_policy_on_the_agents_own_environment_sees_whole_episodes(name):
    if name == "native":
        envs = gym.make_vec("CartPole-v1", num_envs=3)
    elif name == "recorded":
        envs = RecordEpisodeStatistics(gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync"))
    else:
        envs = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 3, autoreset_mode=name)
    agent = Reinforce("MlpPolicy", envs, episodes_per_update=4, device="cpu").learn(1)
    rewards, lengths = evaluate_policy(agent, agent.get_env(), 9, return_episode_rewards=True)
    assert len(rewards) == 9 and rewards == lengths and min(lengths) > 5, "a pole pays 1 at every step"
    assert agent.get_env().num_envs == agent.n_envs == 3
    agent.learn(1, reset_num_timesteps=False)
    assert agent.num_updates == 2


def test_evaluate_policy_waits_for_verdicts_that_come_late():
    env = {"verifier": "length", "verifier_workers": 1, "problems": ["ab"], "test_fraction": 0.0, "max_new_tokens": 3}
    agent = Reinforce("tiny", "TextGen-v0", env_kwargs=env, episodes_per_update=4, device="cpu")
    assert agent.env.metadata["late_verdicts"]
    agent.learn(1)
    infos = []
    rewards, _ = evaluate_policy(
        agent,
        agent.get_env(),
        6,
        return_episode_rewards=True,
        callback=lambda local, _: infos.append(local["info"]) if local["done"] else None,
    )
    assert len(rewards) == 6 and {info["verdict_status"] for info in infos[:6]} == {"ok"}
    assert all(info["episode"]["l"] <= 3 and "terminal_observation" in info for info in infos)
    agent.env.close()
