"""An agent makes its environment once, reads its tokenizer once and its file of problems once."""

import json
import multiprocessing
from collections import Counter

import gymnasium as gym
import pytest
from diagonal import diagonal
from gymnasium.vector import SyncVectorEnv
from tiny_models import write_chat_model
from transformers import AutoTokenizer

from agents import PPO, RLOO, Reinforce
from rlenv import problems as problem_files
from rlenv import tokenizer as tokenizers
from rlenv.textgen import TextGenEnv

TEXT = "rlenv:TextGen-v0"
ARITH = {"verifier": "arith", "max_new_tokens": 4}
SMALL = {"episodes_per_update": 4, "device": "cpu"}


def counted(patch, *watched):
    """Return the calls from now on, by name; `watched` are (name, object, attribute that is called)."""
    count = Counter()

    def watch(name, place, method):
        original = getattr(place, method)

        def call(*args, **kwargs):
            count[name] += 1
            return original(*args, **kwargs)

        patch.setattr(place, method, call)

    for each in watched:
        watch(*each)
    return count


@pytest.fixture
def made(monkeypatch):
    """Count how often things are made or read from now on."""
    return counted(
        monkeypatch,
        ("env", gym, "make_vec"),
        ("env", SyncVectorEnv, "__init__"),
        ("tokenizer", tokenizers, "character_tokenizer"),
        ("tokenizer", AutoTokenizer, "from_pretrained"),
        ("file", problem_files, "read_rows"),
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of one's own, whose vocabulary is larger than its tokenizer's."""
    path = tmp_path_factory.mktemp("models") / "own"
    write_chat_model(path)
    return str(path)


@pytest.fixture
def problems(tmp_path):
    file = tmp_path / "problems.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{n}+{n}=", "answer": str(n + n)}) + "\n" for n in range(9)))
    return {"verifier": "exact", "problems": str(file), "test_fraction": 0.0, "max_new_tokens": 4}


@diagonal("env, policy, settings", ["CartPole-v1", "Acrobot-v1"], ["auto", "MlpPolicy"], [{}, {"num_envs": 2}, SMALL])
def test_of_control(env, policy, settings, made):
    agent = PPO(policy, env, **settings)
    assert made == {"env": 1}
    assert agent.num_envs == settings.get("num_envs", settings.get("episodes_per_update", 16))


@diagonal("policy, settings", ["auto", "tiny"], [{}, {"num_envs": 2, **SMALL}])
def test_of_text(policy, settings, made):
    agent = Reinforce(policy, TEXT, env_kwargs=ARITH, **{"device": "cpu", **settings})
    assert made == {"env": 1, "tokenizer": 1}
    assert (agent.num_envs, agent.episodes_per_update) == ((2, 4) if settings else (256, 256))


def test_with_a_file_of_problems(problems, made):
    RLOO("tiny", TEXT, env_kwargs=problems, group_size=2, **SMALL)
    assert made == {"env": 1, "tokenizer": 1, "file": 1}


@pytest.mark.parametrize("given", [None, "named"])
def test_with_a_model_s_own_tokenizer(given, model, problems, made):
    """It is not read again to be compared, nor to know its size."""
    named = {} if given is None else {"tokenizer": model}
    agent = RLOO(model, TEXT, env_kwargs=problems | named, group_size=2, **SMALL)
    assert made == {"env": 1, "tokenizer": 1, "file": 1}
    assert agent.policy.tokenizer is agent.env.unwrapped.task.tokenizer
    assert agent.origin["env_kwargs"]["tokenizer"] == model, "a checkpoint keeps its name"


def test_of_a_finished_policy(model, made):
    policy = Reinforce("tiny", TEXT, env_kwargs=ARITH, **SMALL).policy
    made.clear()
    assert Reinforce(policy, TEXT, env_kwargs=ARITH, device="cpu").num_envs == 256
    assert made == {"env": 1, "tokenizer": 1}


def test_loaded_checkpoints(model, problems, tmp_path, made):
    """The tokenizer in the checkpoint is read to be compared with the environment's; of a preset, nothing else is."""
    saved = {
        "control": (PPO("MlpPolicy", "CartPole-v1", **SMALL), {"env": 1}),
        "preset": (RLOO("tiny", TEXT, env_kwargs=problems, group_size=2, **SMALL), {"file": 1, "tokenizer": 2}),
        "own": (
            RLOO(model, TEXT, env_kwargs=problems, group_size=2, kl_coef=0.1, **SMALL),
            {"file": 1, "tokenizer": 2},
        ),
    }
    for name, (agent, expected) in saved.items():
        agent.save(tmp_path / name)
        made.clear()
        type(agent).load(tmp_path / name, device="cpu")
        assert made == {"env": 1, **expected}, name


def test_another_environment(made):
    agent = PPO("MlpPolicy", "CartPole-v1", **SMALL)
    agent.set_env("CartPole-v1", {"max_episode_steps": 9})
    assert made == {"env": 2}


def test_a_small_budget_takes_fewer_episodes_in_the_same_environment(made):
    agent = PPO("MlpPolicy", "CartPole-v1", device="cpu")
    env = agent.env
    agent.updates(1_000)
    assert made == {"env": 1} and agent.env is env and agent.episodes_per_update == 1


def test_a_text_environment_that_does_not_say_so_is_made_once(monkeypatch, made):
    """`auto` is known to be a language model only once the spaces are there."""
    name = "UndeclaredText-v0"
    monkeypatch.setitem(gym.registry, name, gym.envs.registration.EnvSpec(id=name, entry_point=TextGenEnv))
    agent = Reinforce("auto", name, env_kwargs=ARITH, device="cpu")
    assert agent.policy.kind == "language-model" and agent.episodes_per_update == 256 and made["env"] == 1
    named = Reinforce("tiny", name, env_kwargs=ARITH, device="cpu", episodes_per_update=20)
    assert named.num_envs == 20 and made["env"] == 2


ASYNC = {"vectorization_mode": "async"}


def test_a_refused_agent_closes_the_environment_that_it_made():
    before = set(multiprocessing.active_children())
    held = []  # the errors hold the frames, and so the environment
    for wrong, message in (({"policy_kwargs": {"x": 1}}, "argument 'x'"), ({"group_size": 2}, "group_size")):
        with pytest.raises(ValueError, match=message) as error:
            PPO("MlpPolicy", "CartPole-v1", env_kwargs=ASYNC, **wrong, **SMALL)
        held.append(error.value)
        assert set(multiprocessing.active_children()) == before


def test_a_refused_change_closes_only_the_environment_that_it_made():
    agent = PPO("MlpPolicy", "CartPole-v1", **SMALL)
    env, before = agent.env, set(multiprocessing.active_children())
    with pytest.raises(ValueError, match="the observation space") as error:
        agent.set_env("Acrobot-v1", ASYNC)
    assert error.value.__traceback__, "it holds the environment"
    assert set(multiprocessing.active_children()) == before
    given = gym.make_vec("Acrobot-v1", 2)
    with pytest.raises(ValueError, match="the observation space"):
        agent.set_env(given)
    assert not given.closed and not env.closed and agent.env is env
