"""What a class of one's own may be called and must say; mistakes are found when it is defined, or first called."""

from __future__ import annotations

import copy

import pytest

from agents import PPO, Agent, Reinforce
from agents.settings import setting

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
    ("annotation", "facts"),
    [("Any", {}), ("object", {}), ("Optional[float]", {}), ("'Alias'", {}), ("Annotated[float | None, 'x']", {})],
)
def test_a_type_that_is_not_checked_may_have_no_default(annotation, facts):
    assert type("Right", (Reinforce,), {"tilt": setting(**facts), "__annotations__": {"tilt": annotation}})


def test_a_class_may_narrow_what_it_inherits_and_answer_for_it_when_it_is_made():
    cls = type("Narrow", (Reinforce,), {"episodes_per_update": setting(low=32)})
    assert cls("MlpPolicy", "CartPole-v1", device="cpu", episodes_per_update=32).episodes_per_update == 32


def test_a_value_of_ones_own_may_become_a_setting():
    base = type("Base", (Reinforce,), {"factor": 0.5})
    made = type("Made", (base,), {"factor": setting(0.25), "__annotations__": {"factor": "float"}})
    assert made("MlpPolicy", "CartPole-v1", device="cpu").factor == 0.25


def test_an_agent_can_be_copied():
    agent = PPO("MlpPolicy", "CartPole-v1", device="cpu", gamma=0.5)
    assert isinstance(agent, Agent) and copy.copy(agent).gamma == copy.deepcopy(agent).gamma == 0.5
