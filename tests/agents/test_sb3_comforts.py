"""What users of stable-baselines3 reach for: other environments, weights by name, seeds, values, schedules, names."""

import json

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from tiny_models import text_envs, tiny_policy

from agents import GRPO, PPO, RLOO, LanguageModelPolicy
from agents.files import seal
from agents.policies.base import weights_digest
from agents.training.saved_spaces import described, space_of

CPU = {"device": "cpu"}
SMALL = {"episodes_per_update": 4, "learning_rate": 1e-2, **CPU}


def pole(cls=PPO, env="CartPole-v1", **settings):
    few = {"num_epochs": 2, "num_minibatches": 2}
    return cls("MlpPolicy", env, **{**SMALL, **few, **settings})


def same_weights(ours, theirs):
    return weights_digest(ours.policy) == weights_digest(theirs.policy)


# Another environment.


def test_an_agent_goes_on_in_another_environment(tmp_path):
    agent = pole().learn(total_episodes=8)
    agent.set_env("CartPole-v1", env_kwargs={"sutton_barto_reward": True})
    assert agent.env.envs[0].spec.kwargs["sutton_barto_reward"] and agent.env.num_envs == agent.num_envs == 4
    agent.learn(total_episodes=8, reset_num_timesteps=False)
    assert agent.num_episodes == 16
    agent.save(tmp_path / "agent")
    assert PPO.load(tmp_path / "agent").origin["env_kwargs"] == {"sutton_barto_reward": True}


def test_an_object_as_environment_has_its_own_slots():
    agent = pole()
    mine = make_vec_env("CartPole-v1", n_envs=2)
    agent.set_env(mine)
    assert agent.get_env() is mine and agent.n_envs == 2
    agent.learn(total_episodes=4)
    assert agent.origin == {"env": None, "env_kwargs": None}


def test_a_new_environment_keeps_the_size_of_groups():
    agent = RLOO("tiny", "TextGen-v0", env_kwargs={"verifier": "arith"}, group_size=2, episodes_per_update=4, **CPU)
    agent.set_env("TextGen-v0", env_kwargs={"verifier": "arith", "split": "test"})
    assert agent.group_size == 2 and agent.env.task.split == "test"
    agent.learn(total_episodes=4)


# Evaluating by the id of an environment.


def test_the_id_of_the_training_brings_its_arguments(monkeypatch):
    """An environment by id has the arguments of the training but those that are changed, and is closed at the end."""
    agent = RLOO("tiny", "TextGen-v0", env_kwargs={"verifier": "arith"}, group_size=2, episodes_per_update=4, **CPU)
    figures, episodes = agent.evaluate("TextGen-v0", 6, seed=0)
    assert figures["episodes"] == len(episodes) == 6 and agent.origin["env_kwargs"]["verifier"] == "arith"
    seen, make = [], gym.make_vec
    monkeypatch.setattr(gym, "make_vec", lambda *args, **kwargs: seen.append(make(*args, **kwargs)) or seen[-1])
    agent.evaluate("TextGen-v0", 3, env_kwargs={"split": "test"})
    assert seen[0].task.split == "test" and seen[0].num_envs == 3 and seen[0].closed
    assert agent.env.task.split == "train" and not agent.env.closed
    with pytest.raises(ValueError, match="is for the id of an environment"):
        agent.evaluate(agent.env, 2, env_kwargs={"split": "test"})


def test_another_id_has_no_arguments_of_the_training():
    agent = pole(env_kwargs={"sutton_barto_reward": True})
    assert agent.evaluate("CartPole-v1", 2, seed=0)[0]["mean_reward"] <= 0
    assert agent.evaluate("gymnasium:CartPole-v1", 2, seed=0)[0]["mean_reward"] > 0


# Loading without an environment.


def test_a_loaded_agent_predicts_without_an_environment(tmp_path):
    agent = pole(env=make_vec_env("CartPole-v1", n_envs=2)).learn(total_episodes=4)
    agent.save(tmp_path / "agent")
    loaded = PPO.load(tmp_path / "agent", **CPU)
    seen = np.linspace(-1, 1, 4 * 4, dtype=np.float32).reshape(4, 4)
    wanted, got = (each.predict(seen, deterministic=True)[0] for each in (agent, loaded))
    assert np.array_equal(wanted, got) and loaded.predict(seen[0])[0].shape == ()
    assert loaded.get_env() is None
    with pytest.raises(ValueError, match=r"was loaded without an environment: call set_env\(env\)"):
        loaded.learn(100)
    test = gym.make("CartPole-v1")
    assert evaluate_policy(loaded, test, n_eval_episodes=2, warn=False)[0] > 0
    assert loaded.evaluate("CartPole-v1", 2)[0]["episodes"] == 2
    loaded.save(tmp_path / "again")
    again = PPO.load(tmp_path / "again", **CPU)
    again.set_env(make_vec_env("CartPole-v1", n_envs=2))
    again.learn(total_episodes=4, reset_num_timesteps=False)
    assert again.num_episodes == 8


def test_damaged_facts_are_one_line(tmp_path):
    pole(env=make_vec_env("CartPole-v1", n_envs=2)).save(tmp_path / "agent")
    file = tmp_path / "agent" / "agent.json"
    facts = json.loads(file.read_text())
    deep = {"kind": "Discrete", "n": 2, "start": 0}
    for _ in range(300):
        deep = {"kind": "Dict", "spaces": {"a": deep}}
    odd = facts["spaces"] | {"observation": deep}
    wrong = [
        {"functions": [{}]}, {"functions": "clip_range"}, {"spaces": []}, {"spaces": {"observation": 3, "action": 3}},
        {"spaces": odd}, {"spaces": facts["spaces"] | {"action": {"kind": "Discrete", "n": 3, "start": 0}}},
        {"settings": facts["settings"] | {"group_size": "4"}},
    ]  # fmt: skip
    for change in wrong:
        file.write_text(json.dumps(facts | change))
        seal(tmp_path / "agent")
        with pytest.raises(ValueError, match=r".") as error:
            PPO.load(tmp_path / "agent", **CPU)
        assert "\n" not in str(error.value) and len(str(error.value)) < 500, change


SPACES = [
    spaces.Box(-np.inf, np.inf, (3,)),
    spaces.Box(np.array([-1.5, 0.1], np.float32), np.array([np.inf, 3.0], np.float32)),
    spaces.Box(0, 255, (3, 4, 4), np.uint8),
    spaces.Discrete(3, start=2),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(4),
    spaces.Dict({"tokens": spaces.Box(0, 9, (5,), np.int64), "length": spaces.Discrete(6)}),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_spaces_come_back_as_they_were(space):
    assert space_of(json.loads(json.dumps(described(space)))) == space
    assert described(spaces.Tuple([space])) is None


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {"kind": "Tuple"},
        {"kind": "Box", "low": 0, "high": 1, "shape": [10**6, 10**6], "dtype": "float32"},
        {"kind": "Box", "low": 0, "high": 1, "shape": [-1], "dtype": "float32"},
        {"kind": "Box", "low": 0, "high": 1, "shape": [2], "dtype": "object"},
        {"kind": "Discrete", "n": "2", "start": 0},
        {"kind": "MultiBinary", "n": 10**12},
        {"kind": "Dict", "spaces": {"a": {"kind": "Discrete"}}},
    ],
)
def test_a_damaged_space_is_one_line(wrong):
    with pytest.raises(ValueError, match="space") as error:
        space_of(wrong)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


# Weights by name, and seeds.


def test_parameters_come_back(tmp_path):
    agent, other = pole(seed=0).learn(total_episodes=4), pole(seed=1)
    kept = agent.get_parameters()
    assert set(kept) == {"policy", "policy.optimizer"}
    agent.learn(total_episodes=4)
    assert not same_weights(agent, other)
    agent.set_parameters(kept)
    other.set_parameters(kept)
    assert same_weights(agent, other), "what was returned does not change with the agent"
    agent.save(tmp_path / "agent")
    third = pole(seed=2)
    third.set_parameters(tmp_path / "agent")
    assert same_weights(third, agent)
    rates = [each.optimizer.state_dict()["state"][0]["exp_avg"] for each in (third, agent)]
    assert torch.equal(*rates)


def test_some_parameters_only_if_that_is_said():
    agent, other = pole(seed=0), pole(seed=1)
    weights = agent.policy.state_dict()
    name = next(iter(weights))
    for wrong in ({"policy": weights}, {"polisy": weights}):
        with pytest.raises(ValueError, match=r"set_parameters.*exact_match=False"):
            other.set_parameters(wrong)
    other.set_parameters({"policy": weights}, exact_match=False)
    assert same_weights(agent, other)
    other.set_parameters({"policy": {name: torch.zeros_like(weights[name])}}, exact_match=False)
    assert not other.policy.state_dict()[name].any()
    for wrong in ({"policy": {"no": torch.zeros(1)}}, {"critic": {}}, {"policy": {name: torch.zeros(1)}}):
        with pytest.raises(ValueError, match="set_parameters") as error:
            other.set_parameters(wrong, exact_match=False)
        assert "\n" not in str(error.value)


def test_a_refused_dictionary_changes_nothing():
    agent, other = pole(seed=0), pole(seed=1)
    name, *_, last = agent.policy.state_dict()
    with pytest.raises(ValueError, match="set_parameters"):
        other.set_parameters({"policy": {name: agent.policy.state_dict()[name], last: torch.zeros(7)}}, False)
    assert same_weights(other, pole(seed=1))


def test_a_seed_that_is_set_is_that_of_the_constructor():
    wanted = pole(seed=3)
    agent = pole(seed=0)
    agent.learn(total_episodes=4)
    agent.set_parameters(wanted.get_parameters())
    agent.set_random_seed(3)
    state = torch.random.get_rng_state()
    for each in (wanted, agent):
        each.learn(total_episodes=8)
    assert same_weights(agent, wanted) and agent.settings["seed"] == 3
    assert torch.equal(state, torch.random.get_rng_state())
    agent.set_random_seed(None)
    assert agent.seed == 3
    with pytest.raises(ValueError, match="seed must be a whole number"):
        agent.set_random_seed(-1)


# Values of observations.


def test_a_policy_predicts_the_values_of_observations():
    agent = pole()
    seen = torch.linspace(-1, 1, 12).view(3, 4)
    net = agent.policy.net
    wanted = net.predict_values(seen)
    for obs in (seen, seen.double().numpy()):
        values = agent.policy.values(obs)
        assert values.shape == (3, 1) and torch.allclose(values, wanted) and values.requires_grad


def test_so_does_the_critic_of_a_language_model():
    envs = text_envs(4)
    agent = PPO(tiny_policy("llama", envs, critic="head"), envs, **SMALL)
    rollout = next(iter(agent.updates(total_episodes=4)))[0]
    obs = rollout.observations
    whole = agent.policy.values(rollout)[:, 0]
    assert torch.allclose(agent.policy.values(obs)[:, 0], whole, atol=1e-5)
    assert agent.policy.values({key: value.numpy() for key, value in obs.items()}).shape == (4, 1)
    assert isinstance(agent.policy, LanguageModelPolicy)


# Schedules.


def test_clipping_follows_a_function_of_the_remaining_progress():
    asked = []

    def schedule(remaining):
        asked.append(remaining)
        return 0.3 * remaining

    agent = pole(clip_range=schedule, clip_range_vf=lambda remaining: remaining)
    ranges = []
    for _ in agent.updates(total_episodes=16):
        ranges.append((agent.present("clip_range"), agent.present("clip_range_high"), agent.present("clip_range_vf")))
    assert ranges == [(0.3 * x, 0.3 * x, x) for x in (1.0, 0.75, 0.5, 0.25)]
    assert set(asked) == {1.0, 0.75, 0.5, 0.25}


@pytest.mark.parametrize("name", ["clip_range", "clip_range_high", "clip_range_vf"])
def test_what_a_schedule_returns_is_checked(name):
    with pytest.raises(ValueError, match=f"{name} must be a finite number above 0"):
        pole(**{name: lambda remaining: -1.0})
    agent = pole(**{name: lambda remaining: 0.2 if remaining == 1 else 0.0})
    with pytest.raises(ValueError, match=f"{name} must be a finite number above 0"):
        agent.learn(total_episodes=8)


@pytest.mark.parametrize("cls", [PPO, GRPO])
def test_a_function_has_to_be_given_again(cls, tmp_path):
    pole(cls, clip_range=lambda remaining: 0.1 * remaining).save(tmp_path / "agent")
    with pytest.raises(ValueError, match=r"was trained with a function as clip_range: pass clip_range=\.\.\."):
        cls.load(tmp_path / "agent")
    loaded = cls.load(tmp_path / "agent", clip_range=0.3)
    assert (loaded.clip_range, loaded.clip_range_high) == (0.3, 0.3)
