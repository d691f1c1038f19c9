"""What a class of one's own may be called and must say; mistakes are found when it is defined, or first called."""

from __future__ import annotations

import copy

import pytest

from agents import GRPO, PPO, RLOO, Agent, Reinforce
from agents.core.settings import setting

INTERNAL = (
    *("is_root", "moment", "random_state", "load_random_state"),
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
    with pytest.raises(TypeError, match=r"^Wrong.weights is 3, but GRPO has a method"):
        type("Wrong", (GRPO,), {"weights": 3})
    with pytest.raises(TypeError, match=r"^Wrong.kl_coef is a setting"):
        type("Wrong", (GRPO,), {"kl_coef": lambda progress: 0.1 * progress})
    assert type("Right", (GRPO,), {"weights": staticmethod(lambda mask: mask.float())})


@pytest.mark.parametrize(
    ("annotation", "facts", "said"),
    [
        ("float", {}, "Wrong.tilt has no default: write setting(default=...), or the type float | None"),
        ("int", {"help": "Turns."}, "Wrong.tilt has no default: write setting(default=...), or the type int | None"),
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
    ("annotation", "facts"),
    [("Any", {}), ("object", {}), ("Optional[float]", {}), ("'Alias'", {}), ("Annotated[float | None, 'x']", {})],
)
def test_a_type_that_is_not_checked_may_have_no_default(annotation, facts):
    assert type("Right", (Reinforce,), {"tilt": setting(**facts), "__annotations__": {"tilt": annotation}})


def test_a_class_may_narrow_what_it_inherits_and_answer_for_it_when_it_is_made():
    cls = type("Narrow", (Reinforce,), {"episodes_per_update": setting(range="[32, inf)")})
    assert cls("MlpPolicy", "CartPole-v1", device="cpu", episodes_per_update=32).episodes_per_update == 32


def test_a_value_of_ones_own_may_become_a_setting():
    base = type("Base", (Reinforce,), {"factor": 0.5})
    made = type("Made", (base,), {"factor": setting(default=0.25), "__annotations__": {"factor": "float"}})
    assert made("MlpPolicy", "CartPole-v1", device="cpu").factor == 0.25


def test_an_agent_can_be_copied():
    agent = PPO("MlpPolicy", "CartPole-v1", device="cpu", gamma=0.5)
    assert isinstance(agent, Agent) and copy.copy(agent).gamma == copy.deepcopy(agent).gamma == 0.5
