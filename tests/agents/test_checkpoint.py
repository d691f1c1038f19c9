"""Checkpoints: what can be saved, what is refused, and that nothing of anybody's is lost."""

import json

import pytest

import rlenv  # noqa: F401
from agents import Agent, Reinforce, ReinforceBaseline

SMALL = {"episodes_per_update": 4, "num_envs": 4, "device": "cpu"}


def pole(cls=ReinforceBaseline, **kwargs):
    return cls("MlpPolicy", "CartPole-v1", **{**SMALL, **kwargs})


class Louder(ReinforceBaseline):
    """Somebody's own algorithm."""


def reward(prompts, completions, **columns):
    return [float(len(completion)) for completion in completions]


@pytest.mark.parametrize("name", ["results", "thesis.txt"])
def test_a_path_that_holds_something_else_is_not_replaced(name, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "figure.png").write_text("years of work")
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="exists and is no checkpoint"):
        pole().save(tmp_path / name)
    assert (tmp_path / "results" / "figure.png").read_text() == "years of work"
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_class_of_the_users_own_is_saved_and_loaded_through_itself(tmp_path):
    pole(Louder).save(tmp_path / "agent")
    assert type(Louder.load(tmp_path / "agent")) is Louder


def test_another_class_is_refused(tmp_path):
    pole(Reinforce).save(tmp_path / "agent")
    with pytest.raises(ValueError, match="holds a Reinforce, not a ReinforceBaseline"):
        ReinforceBaseline.load(tmp_path / "agent")
    assert type(Agent.load(tmp_path / "agent")) is Reinforce


def test_an_agent_whose_environment_was_made_with_objects_is_saved_and_asks_for_it(tmp_path):
    env_kwargs = {"verifier": reward, "problems": ["ab", "cd"], "test_fraction": 0.0, "max_new_tokens": 3}
    agent = Reinforce("tiny", "TextGen-v0", env_kwargs=env_kwargs, **SMALL)
    agent.save(tmp_path / "agent")
    with pytest.raises(ValueError, match="does not name its environment: pass env="):
        Reinforce.load(tmp_path / "agent")
    loaded = Reinforce.load(tmp_path / "agent", env="TextGen-v0", env_kwargs=env_kwargs, device="cpu")
    assert loaded.env.task.verifier.function is reward


def test_a_learning_rate_that_was_a_function_has_to_be_given_again(tmp_path):
    pole(learning_rate=lambda remaining: 1e-3 * remaining).save(tmp_path / "agent")
    with pytest.raises(ValueError, match="pass learning_rate="):
        ReinforceBaseline.load(tmp_path / "agent")
    assert ReinforceBaseline.load(tmp_path / "agent", learning_rate=1e-4).learning_rate == 1e-4


def test_the_reference_is_left_where_it_is_when_nobody_pays_for_it(tmp_path):
    agent = pole(kl_coef=0.1).learn(50)
    agent.save(tmp_path / "agent")
    assert ReinforceBaseline.load(tmp_path / "agent").anchor.reference is not None
    assert ReinforceBaseline.load(tmp_path / "agent", kl_coef=0.0).anchor.reference is None


@pytest.mark.parametrize(
    ("text", "message"), [("{", "is damaged"), (json.dumps({"format": 99}), "checkpoint format 99")]
)
def test_a_damaged_or_foreign_checkpoint_is_one_clear_line(text, message, tmp_path):
    pole().save(tmp_path / "agent")
    (tmp_path / "agent" / "agent.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        ReinforceBaseline.load(tmp_path / "agent")


def test_a_save_that_was_killed_between_its_renames_is_found(tmp_path):
    pole().save(tmp_path / "agent")
    (tmp_path / "agent").rename(tmp_path / ".agent-old")
    assert isinstance(ReinforceBaseline.load(tmp_path / "agent"), ReinforceBaseline)


def test_policy_arguments_for_a_finished_policy_are_refused(tmp_path):
    pole().save(tmp_path / "agent")
    with pytest.raises(ValueError, match="together with a finished policy"):
        ReinforceBaseline.load(tmp_path / "agent", policy_kwargs={"net_arch": [8]})


def test_a_group_size_that_the_environment_does_not_have_is_refused():
    with pytest.raises(ValueError, match="group_size 2 is not to be had: the environment knows no groups"):
        pole(group_size=2)
