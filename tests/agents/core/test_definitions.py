"""What a class of one's own may be called and must say; mistakes are found when it is defined, or first called."""

from __future__ import annotations

import copy

import pytest

from agents import GRPO, PPO, RLOO, Agent, Reinforce
from agents.core.settings import setting

INTERNAL = (
    *("is_root", "may_lack", "moment", "own_parts", "parts", "random_state", "load_random_state"),
    *("restore", "set_settings", "fit_to_budget", "use_policy"),
)


def test_an_agent_takes_no_public_name_for_what_only_the_library_calls():
    assert [name for name in INTERNAL if hasattr(PPO, name)] == []


def test_names_of_ones_own_do_not_change_how_an_agent_is_saved(tmp_path):
    class Own(Reinforce):
        """With attributes of its own."""

        def __init__(self, policy, env, **settings):
            for name in INTERNAL:
                setattr(self, name, None)
            super().__init__(policy, env, **settings)

    agent = Own("MlpPolicy", "CartPole-v1", device="cpu", episodes_per_update=2).learn(total_episodes=2)
    agent.save(tmp_path / "agent")
    assert Own.load(tmp_path / "agent", device="cpu").num_updates == 1


@pytest.mark.parametrize(
    ("name", "owner"), [("update", "Agent"), ("env", "Surface"), ("logger", "Surface"), ("compares_groups", "RLOO")]
)
def test_a_setting_that_would_hide_something_of_an_agent_is_refused(name, owner):
    with pytest.raises(TypeError) as error:
        type("Wrong", (RLOO,), {name: setting(default=0.5), "__annotations__": {name: "float"}})
    assert str(error.value) == f"Wrong.{name}: {owner} uses this name; choose another for the setting"


def test_a_value_in_the_place_of_a_setting_or_a_method_is_refused():
    with pytest.raises(TypeError, match=r"^Wrong.gamma is a setting: write gamma = setting\(default=0.5\)$"):
        type("Wrong", (GRPO,), {"gamma": 0.5})
    with pytest.raises(TypeError, match=r"^Wrong.update is 3, but Agent has a method update\(\); choose another name$"):
        type("Wrong", (GRPO,), {"update": 3})
    assert type("Right", (GRPO,), {"weights": staticmethod(lambda mask: mask.float())})


@pytest.mark.parametrize(
    ("annotation", "facts", "said"),
    [
        ("float", {}, "Wrong.tilt has no default: write setting(default=...), or the type float | None"),
        ("int", {"help": "Turns."}, "Wrong.tilt has no default: write setting(default=...), or the type int | None"),
        ("str", {}, "Wrong.tilt has no default: write setting(default=...), or the type str | None"),
        ("float", {"default": 2, "range": "[0, 1]"}, "Wrong.tilt: its default is wrong: tilt must be a finite number "),
        ("float", {"by_kind": {"any": 2}, "range": "[0, 1]"}, "Wrong.tilt: its default is wrong: tilt must be a "),
        ("str", {"default": "up", "choices": ("left",)}, "Wrong.tilt: its default is wrong: unknown tilt 'up'"),
    ],
)
def test_a_setting_needs_a_default_that_is_allowed(annotation, facts, said):
    with pytest.raises(TypeError) as error:
        type("Wrong", (Reinforce,), {"tilt": setting(**facts), "__annotations__": {"tilt": annotation}})
    assert str(error.value).startswith(said) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "PPO needs policy and env: PPO(policy, env, name=value, ...)"),
        (("MlpPolicy",), "PPO needs env: PPO(policy, env, name=value, ...)"),
        (("MlpPolicy", "CartPole-v1", 3e-4), "PPO takes policy and env, then names: PPO(policy, env, name=value, ...)"),
    ],
)
def test_a_missing_argument_is_named_with_the_class(given, said):
    with pytest.raises(TypeError) as error:
        PPO(*given)
    assert str(error.value) == said


def test_an_agent_can_be_copied():
    agent = PPO("MlpPolicy", "CartPole-v1", device="cpu", gamma=0.5)
    assert isinstance(agent, Agent) and copy.copy(agent).gamma == copy.deepcopy(agent).gamma == 0.5
