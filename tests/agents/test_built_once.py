"""An agent makes its environment once, reads its tokenizer once and its file of problems once."""

import json
import multiprocessing
from collections import Counter

import gymnasium as gym
import pytest
from gymnasium.vector import SyncVectorEnv
from tiny_models import write_chat_model
from transformers import AutoTokenizer

from agents import PPO, RLOO, Reinforce
from rlenv import problems as problem_files
from rlenv import tokenizer as tokenizers

TEXT = "rlenv:TextGen-v0"
ARITH = {"verifier": "arith", "max_new_tokens": 4}
SMALL = {"episodes_per_update": 4, "device": "cpu"}
ONE, TWO = {"num_envs": 2, "device": "cpu"}, {"num_envs": 2, **SMALL}


@pytest.fixture
def made(monkeypatch):
    """Count how often things are made or read from now on."""
    count = Counter()

    def watch(name, place, method):
        original = getattr(place, method)
        monkeypatch.setattr(place, method, lambda *args, **more: count.update([name]) or original(*args, **more))

    watch("env", gym, "make_vec")
    watch("env", SyncVectorEnv, "__init__")
    watch("tokenizer", tokenizers, "character_tokenizer")
    watch("tokenizer", AutoTokenizer, "from_pretrained")
    watch("file", problem_files, "read_rows")
    return count


@pytest.fixture
def model(tmp_path):
    """A model of one's own, whose vocabulary is larger than its tokenizer's."""
    write_chat_model(tmp_path / "model")
    return str(tmp_path / "model")


@pytest.fixture
def problems(tmp_path):
    file = tmp_path / "problems.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{n}+{n}=", "answer": str(n + n)}) + "\n" for n in range(9)))
    return {"verifier": "exact", "problems": str(file), "test_fraction": 0.0, "max_new_tokens": 4}


@pytest.mark.parametrize(
    ("cls", "policy", "env", "settings", "sizes", "wanted"),
    [
        (PPO, "auto", "CartPole-v1", ONE, (2, 16), {"env": 1}),
        (PPO, "MlpPolicy", "Acrobot-v1", SMALL, (4, 4), {"env": 1}),
        (Reinforce, "auto", TEXT, {"env_kwargs": ARITH, "device": "cpu"}, (256, 256), {"env": 1, "tokenizer": 1}),
        (Reinforce, "tiny", TEXT, {"env_kwargs": ARITH, **TWO}, (2, 4), {"env": 1, "tokenizer": 1}),
    ],
)
def test_an_agent_of_an_id(cls, policy, env, settings, sizes, wanted, made):
    agent = cls(policy, env, **settings)
    assert made == wanted
    assert (agent.num_envs, agent.episodes_per_update) == sizes


@pytest.mark.parametrize("tokenizer", [False, True])
def test_with_a_file_of_problems_and_a_model_s_own_tokenizer(tokenizer, model, problems, made):
    """It is not read again to be compared, nor to know its size."""
    named = problems | ({"tokenizer": model} if tokenizer else {})
    agent = RLOO(model, TEXT, env_kwargs=named, group_size=2, **SMALL)
    assert made == {"env": 1, "tokenizer": 1, "file": 1}
    assert agent.policy.tokenizer is agent.env.unwrapped.task.tokenizer
    assert agent.origin["env_kwargs"]["tokenizer"] == model, "a checkpoint keeps its name"


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
