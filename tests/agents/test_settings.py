"""Every agent shows all its settings, names a typo, can be watched update by update, and be derived from."""

import inspect
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from refused import refusal

from rlenv._settings import OrDefault, declared_by, setting
from rlenv.agents import AGENTS, GRPO, Reinforce, ReinforceBaseline, find_agent
from rlenv.agents.algorithms import reinforce_baseline
from rlenv.agents.algorithms.options import SETTINGS
from rlenv.agents.checks import Scheduled
from rlenv.agents.estimators import baselines, best_of_k, kl, mismatch, scaling
from rlenv.agents.policies.base import actor_parameters
from rlenv.agents.training import optimizer


def keywords(cls):
    return {p.name: p for p in inspect.signature(cls).parameters.values() if p.kind is p.KEYWORD_ONLY}


def test_the_classes_are_those_of_the_table_with_its_settings():
    """The table, and the declarations, import no torch, as the classes do."""
    assert list(AGENTS) == list(SETTINGS)
    for name, cls in AGENTS.items():
        assert cls.name == name and declared_by(SETTINGS[name]).keys() <= declared_by(cls).keys()
        optional = {one for one, declared in declared_by(cls).items() if declared.commands}
        assert optional <= declared_by(SETTINGS[name]).keys(), "these say which options there are"


def test_a_class_that_a_session_registers_is_found_by_its_name(monkeypatch):
    monkeypatch.setitem(AGENTS, "tilted", Tilted)
    assert refusal(partial(find_agent, "tilte"), "'tilte'; did you mean 'tilted'").count("rloo") == 1, "each name once"
    assert find_agent("tilted") is Tilted


FUNCTIONS = {
    "grpo": {"kl_estimator": (*kl.ESTIMATORS, kl.EXACT), "kl_ratio": kl.RATIOS, "scale": scaling.SCALES},
    "reinforce": {"mismatch": (*mismatch.MODES, "none"), "lr_schedule": optimizer.SCHEDULES},
    "pkpo": {"baseline": best_of_k.BASELINES},
    "reinforce-baseline": {"baseline": baselines.BASELINES, "returns": reinforce_baseline.RETURNS},
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_names_that_a_setting_allows_are_those_of_the_functions(name):
    declared = declared_by(AGENTS[name])
    assert {one: declared[one].one_of for one in FUNCTIONS[name]} == {k: tuple(f) for k, f in FUNCTIONS[name].items()}


@pytest.mark.parametrize("name", AGENTS)
def test_the_dataclass_has_the_default_that_is_declared_whatever_the_parents(name):
    """A dataclass takes each field from the last parent that has it, an attribute is the first one's."""
    cls = AGENTS[name]
    taken = {one.name: one.default for one in fields(cls) if one.kw_only}
    assert taken == {one: declared.default for one, declared in declared_by(cls).items()}
    assert taken == {one: getattr(cls, one) for one in taken}


class Tilted(GRPO):
    """GRPO with a setting of its own, and others of its parents."""

    tilt: float = setting(default=0.5, help="Of the advantages.", above=0, high=1, more="A test's.")
    where: Literal["here", "there"] | None = setting(default=None, help="Nothing.", saved=False)
    gamma: OrDefault[float] = setting(default=None, by_kind={"control": 0.5})
    clip_range: Scheduled = 0.1
    sizes: tuple[int, int] = (1, 2)
    folder: Path | None = None

    def advantages(self, rollout):
        return self.tilt * super().advantages(rollout)


def test_a_declaration_is_all_that_a_setting_needs(tmp_path):
    shown = keywords(Tilted)
    assert shown["tilt"].default == 0.5
    assert [field.name for field in fields(Tilted)][-4:] == ["tilt", "where", "sizes", "folder"]
    assert "    tilt: Of the advantages. A test's. Allowed: above 0 and at most 1. Default: 0.5.\n" in Tilted.__doc__
    assert Tilted.__doc__.startswith("GRPO with a setting of its own") and "    kl_coef: KL anchor" in Tilted.__doc__
    make = partial(Tilted, "MlpPolicy", "CartPole-v1", device="cpu")
    for wrong in ({"tilt": 2}, {"where": "her"}, {"sizes": "1,2"}):
        refusal(partial(make, **wrong), *wrong)
    agent = make(
        sizes=[3, 4],
        folder="here",
        tilt=np.float32(0.25),
        where="there",
        seed=np.int64(3),
        learning_rate=np.float32(0.5),
    )
    assert (agent.settings["tilt"], agent.learning_rate, agent.where) == (0.25, 0.5, "there")
    assert "where" not in agent.settings and (agent.gamma, agent.clip_range) == (0.5, 0.1)
    agent.save(tmp_path / "agent")
    again = Tilted.load(tmp_path / "agent", device="cpu")
    assert (again.tilt, again.where, again.settings) == (0.25, None, agent.settings)
    assert (again.sizes, again.folder) == ((3, 4), Path("here"))
    assert Tilted.load(tmp_path / "agent", tilt=1, device="cpu").tilt == 1.0


class Powerful(ReinforceBaseline):
    """A user's own algorithm with a setting of its own."""

    def __init__(self, policy, env, *, power=2.0, **settings):
        super().__init__(policy, env, **settings)
        self.power = power


def test_a_setting_of_ones_own_constructor_is_shown_checked_saved_and_loaded(tmp_path):
    class Pole(Reinforce):
        def __init__(self, seed=0, bonus=0.1):
            super().__init__("MlpPolicy", "CartPole-v1", seed=seed, gamma=0.5)
            self.bonus = bonus

    assert {"power", "baseline"} <= keywords(Powerful).keys()
    refusal(partial(Powerful, "MlpPolicy", "CartPole-v1", powr=3.0), "did you mean 'power'", kind=TypeError)
    Powerful("MlpPolicy", "CartPole-v1", power=3.0, device="cpu").save(tmp_path / "agent")
    assert Powerful.load(tmp_path / "agent", device="cpu").power == 3.0
    kept = Pole(seed=4, bonus=0.2).settings
    assert (kept["gamma"], kept["seed"], kept["bonus"]) == (0.5, 4, 0.2)


def test_a_step_is_seen_by_the_version_counter():
    """The fused kernel bypasses it; caches see by it that weights have changed."""
    agent = Reinforce("MlpPolicy", "CartPole-v1", episodes_per_update=2, device="cpu")
    before = [parameter._version for parameter in actor_parameters(agent.policy)]
    agent.learn(1)
    assert all(p._version > version for p, version in zip(actor_parameters(agent.policy), before, strict=True))


def test_a_class_may_narrow_what_it_inherits_and_make_a_value_a_setting():
    body = {"episodes_per_update": setting(default=None, low=32)}
    narrow = type("Narrow", (Reinforce,), body | {"__annotations__": {"episodes_per_update": "OrDefault[int]"}})
    assert narrow("MlpPolicy", "CartPole-v1", device="cpu", episodes_per_update=32).episodes_per_update == 32
    base = type("Base", (Reinforce,), {"factor": 0.5})
    made = type("Made", (base,), {"factor": setting(default=0.25), "__annotations__": {"factor": "float"}})
    assert made("MlpPolicy", "CartPole-v1", device="cpu").factor == 0.25
