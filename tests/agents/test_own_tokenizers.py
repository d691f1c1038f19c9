"""A pretrained model brings its tokenizer, and an environment with other tokens is refused."""

import json
import shutil
from functools import partial

import gymnasium as gym
import pytest
from chat_families import FAMILIES
from refused import refusal
from tiny_models import write_chat_model
from transformers import AutoTokenizer

from rlenv.agents import GRPO, Reinforce, make_envs
from rlenv.agents.policies.base import weights_digest
from rlenv.tokenizer import character_tokenizer

ENV = "rlenv:TextGen-v0"
CHATML = FAMILIES["chatml"]()
SMALL = {"episodes_per_update": 4, "group_size": 2, "device": "cpu"}


TEXTS = {"verifier": "length", "problems": [f"{n}+{n}=" for n in range(9)], "test_fraction": 0.0, "max_new_tokens": 4}
ARITH = {"verifier": "arith", "max_new_tokens": 4, "max_prompt_tokens": 8}
SUMS = {**ARITH, "max_prompt_tokens": 16}  # in tokens of a model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of the Qwen kind: its vocabulary is larger than its tokenizer's."""
    path = tmp_path_factory.mktemp("models") / "own"
    write_chat_model(path)
    return path


@pytest.fixture
def other(folder, tmp_path):
    """The same model with another tokenizer of the same size."""
    shutil.copytree(folder, tmp_path / "other")
    text = (tmp_path / "other/tokenizer.json").read_text(encoding="utf-8")
    (tmp_path / "other/tokenizer.json").write_text(text.replace("<|object_ref_start|>", "<|object|>"), encoding="utf-8")
    return tmp_path / "other"


def test_an_adapter_brings_the_tokenizer_of_its_base(folder, tmp_path):
    agent = GRPO(folder, ENV, env_kwargs=TEXTS, policy_kwargs={"lora_rank": 2}, **SMALL)
    agent.policy.export(tmp_path / "adapter", merge=False)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "adapter" / name).unlink()
    again = GRPO(tmp_path / "adapter", ENV, env_kwargs=TEXTS, **SMALL)
    assert again.origin["env_kwargs"]["tokenizer"] == str(folder)


def test_a_checkpoint_brings_its_tokenizer_to_another_environment_that_is_named(folder, other, tmp_path, monkeypatch):
    """Also where the agent is saved again, and found from another place."""
    monkeypatch.chdir(tmp_path)
    GRPO(folder, ENV, env_kwargs=TEXTS, **SMALL).save("kept")
    GRPO.load("kept", env=ENV, env_kwargs=SUMS).save("again")
    monkeypatch.chdir(folder)
    again = GRPO.load(tmp_path / "again")
    assert again.env.metadata["tokenizer"].get_vocab() == AutoTokenizer.from_pretrained(folder).get_vocab()
    others = TEXTS | {"tokenizer": str(other)}
    refusal(lambda: GRPO.load(tmp_path / "again", env=ENV, env_kwargs=others), "another tokenizer")


MADE_APART = {  # by the user, without the model's tokenizer
    "vector": lambda: gym.make_vec(ENV, 4, **TEXTS),
    "sync": lambda: gym.make_vec(ENV, 4, vectorization_mode="sync", **TEXTS),
    "other alphabet": lambda: gym.make_vec(ENV, 4, **TEXTS, tokenizer=character_tokenizer("0123+=456789")),
}


@pytest.mark.parametrize("kind", MADE_APART)
def test_an_environment_with_other_tokens_is_refused(folder, kind):
    make = partial(Reinforce, folder, MADE_APART[kind](), episodes_per_update=4, device="cpu")
    assert len(refusal(make, f"make the environment with tokenizer='{folder}'")) < 400


def test_another_environment_gets_the_tokenizer_or_is_refused_also_to_evaluate_in(folder, other):
    agent = GRPO(folder, ENV, env_kwargs=TEXTS, **SMALL)
    agent.set_env(ENV, env_kwargs=TEXTS)
    assert agent.env.metadata["tokenizer"].get_vocab() == agent.policy.tokenizer.get_vocab()
    kept, given = agent.env, {**TEXTS, "tokenizer": str(other)}
    refusal(partial(agent.set_env, ENV, given), "the environment has another tokenizer than the model")
    assert agent.env is kept
    refusal(lambda: agent.evaluate(make_envs(ENV, 2, given), 2), "another tokenizer", "with tokenizer=")


def test_a_checkpoint_says_which_tokenizer_and_has_a_copy_of_it(folder, tmp_path, monkeypatch):
    """Also of a relative folder, which is found from elsewhere, and of one that is gone."""
    shutil.copytree(folder, tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    agent = GRPO("mine", ENV, env_kwargs=SUMS, kl_coef=0.1, **SMALL).learn(total_episodes=4)
    assert agent.origin["env_kwargs"]["tokenizer"] == str(tmp_path / "mine")
    agent.save(tmp_path / "saved")
    assert json.loads((tmp_path / "saved/agent.json").read_text())["env_kwargs"] == agent.origin["env_kwargs"]
    for kept in ("policy", "reference"):
        saved = AutoTokenizer.from_pretrained(tmp_path / "saved" / kept / "model")
        assert saved.get_vocab() == CHATML.get_vocab() and saved.chat_template == CHATML.chat_template
    shutil.rmtree(tmp_path / "mine")
    monkeypatch.chdir(folder)
    again = GRPO.load(tmp_path / "saved", device="cpu")
    assert again.policy.tokenizer.get_vocab() == CHATML.get_vocab()
    assert again.policy.stop_token_ids == agent.policy.stop_token_ids and again.origin == agent.origin
    assert again.anchor.reference.tokenizer is again.policy.tokenizer
    agent.learn(total_episodes=4, reset_num_timesteps=False), again.learn(total_episodes=4, reset_num_timesteps=False)
    assert weights_digest(again.policy) == weights_digest(agent.policy)


def test_a_checkpoint_whose_tokenizer_has_changed_since_is_refused(folder, other, tmp_path):
    shutil.copytree(folder, tmp_path / "mine")
    GRPO(tmp_path / "mine", ENV, env_kwargs=SUMS, **SMALL).save(tmp_path / "saved")
    shutil.copy(other / "tokenizer.json", tmp_path / "mine/tokenizer.json")
    message = "the environment has another tokenizer than the model: token 3"
    refusal(partial(GRPO.load, tmp_path / "saved", device="cpu"), message)
