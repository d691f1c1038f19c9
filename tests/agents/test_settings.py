"""Every agent shows all its settings, names a typo, can be watched update by update, and be derived from."""

import copy
import dataclasses
import inspect
from collections.abc import Callable  # noqa: F401  (of an annotation)
from functools import partial
from typing import Optional

import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback

from agents import AGENTS, DAPO, GRPO, GSPO, PPO, Agent, Reinforce, ReinforceBaseline
from agents.algorithms import SETTINGS, reinforce_baseline
from agents.estimators import baselines, best_of_k, kl, mismatch, scaling
from agents.policies.base import actor_parameters
from agents.settings import declared_by, default_of, setting
from agents.training import kl_anchor, optimizer
from agents.training.metrics import Reduce
from agents.training.settings import AgentSettings


def keywords(cls):
    return {p.name: p for p in inspect.signature(cls).parameters.values() if p.kind is p.KEYWORD_ONLY}


def test_the_classes_are_those_of_the_table_with_its_settings():
    """The table, and the declarations, import no torch, as the classes do; a signature shows all."""
    assert list(AGENTS) == list(SETTINGS)
    for name, cls in AGENTS.items():
        assert cls.name == name and declared_by(SETTINGS[name]).keys() <= declared_by(cls).keys()
        optional = {one for one, declared in declared_by(cls).items() if declared.commands}
        assert optional <= declared_by(SETTINGS[name]).keys(), "these say which options there are"
        found = {one.name: one.default for one in dataclasses.fields(cls)}
        assert found == {one.name: one.default for one in declared_by(cls).values()}
        assert found == {one.name: one.default for one in keywords(cls).values()}
        assert list(inspect.signature(cls).parameters)[:2] == ["policy", "env"]
        assert all(getattr(cls, name) == default for name, default in found.items())
    assert (Agent.adam_beta1, Agent.adam_beta2, Agent.adam_eps) == (*optimizer.BETAS, optimizer.EPS)


@pytest.mark.parametrize(
    ("agent", "name", "functions"),
    [
        ("grpo", "kl_estimator", (*kl.ESTIMATORS, kl.EXACT)),
        ("grpo", "kl_ratio", kl.RATIOS),
        ("grpo", "kl_in", kl_anchor.PLACES),
        ("grpo", "mismatch", mismatch.MODES),
        ("grpo", "lr_schedule", optimizer.SCHEDULES),
        ("grpo", "scale", scaling.SCALES),
        ("pkpo", "baseline", best_of_k.BASELINES),
        ("reinforce-baseline", "baseline", baselines.BASELINES),
        ("reinforce-baseline", "returns", reinforce_baseline.RETURNS),
    ],
)
def test_the_names_that_a_setting_allows_are_those_of_the_functions(agent, name, functions):
    assert declared_by(AGENTS[agent])[name].one_of == tuple(functions)


class Tilted(GRPO):
    """GRPO with a setting of its own, and others of its parents."""

    tilt: float = setting(0.5, "Of the advantages.", above=0, high=1, more="A test's.")
    where: str | None = setting(None, "Nothing.", one_of=("here", "there"), saved=False)
    gamma = setting(by_kind={"control": 0.5})
    clip_range = setting(0.1)

    def advantages(self, rollout):
        return self.tilt * super().advantages(rollout)


def test_a_declaration_is_all_that_a_setting_needs(tmp_path):
    shown = keywords(Tilted)
    assert (shown["tilt"].default, shown["tilt"].annotation) == (0.5, "float")
    assert Tilted.__signature__ == inspect.signature(Tilted) and next(iter(shown)) == "tilt"
    assert "    tilt: Of the advantages. A test's. Allowed: above 0 and at most 1. Default: 0.5.\n" in Tilted.__doc__
    assert Tilted.__doc__.startswith("GRPO with a setting of its own") and "    kl_coef: KL anchor" in Tilted.__doc__
    make = partial(Tilted, "MlpPolicy", "CartPole-v1", device="cpu")
    for wrong in ({"tilt": 2}, {"where": "her"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            make(**wrong)
    agent = make(tilt=np.float32(0.25), where="there", seed=np.int64(3), learning_rate=np.float32(0.5))
    assert (agent.settings["tilt"], agent.learning_rate, agent.where) == (0.25, 0.5, "there")
    assert "where" not in agent.settings
    agent.save(tmp_path / "agent")
    again = Tilted.load(tmp_path / "agent", device="cpu")
    assert (again.tilt, again.where, again.settings) == (0.25, None, agent.settings)
    assert Tilted.load(tmp_path / "agent", tilt=1, device="cpu").tilt == 1.0


def test_a_setting_declared_again_keeps_what_it_leaves_out():
    tilted, parents = declared_by(Tilted), declared_by(GRPO)
    assert tilted["gamma"].by_kind == {"control": 0.5, "language-model": 1.0} and tilted["gamma"].high == 1
    assert tilted["clip_range"] == dataclasses.replace(parents["clip_range"], default=0.1)
    agent = Tilted("MlpPolicy", "CartPole-v1", device="cpu")
    assert (agent.gamma, agent.clip_range, agent.clip_range_high) == (0.5, 0.1, 0.1)
    assert parents["gamma"].by_kind["control"] == 0.99 and parents["clip_range"].default == 0.2
    assert keywords(DAPO)["clip_range_high"].default == 0.28
    assert [keywords(GSPO)[name].default for name in ("clip_range", "clip_range_high")] == [3e-4, 4e-4]


def test_a_function_of_the_progress_is_checked_at_its_start():
    """A learning rate may start at zero, as a warm-up does; the limits of a ratio may not. Each is called once."""
    calls = []

    def warming(progress):
        calls.append(progress)
        return 1e-2 * (1 - progress)

    make = partial(PPO, "MlpPolicy", "CartPole-v1", device="cpu")
    assert make(learning_rate=warming).policy_optimizer.rate == 0 and calls == [1.0]
    calls.clear()
    with pytest.raises(ValueError, match=r"clip_range must be a finite number above 0 and below 1, got 0\.0"):
        make(clip_range=warming)
    assert calls == [1.0]


@pytest.mark.parametrize("cls", [DAPO, GSPO])
def test_the_upper_limit_of_a_ratio_may_be_that_of_the_lower(cls):
    agent = cls("MlpPolicy", "CartPole-v1", clip_range=0.1, clip_range_high=None, device="cpu")
    assert agent.clip_range_high == 0.1


def test_a_default_declared_again_replaces_those_by_kind_and_their_description():
    class Patient(Reinforce):
        """With one rate for all."""

        gamma = setting(0.9)
        learning_rate = setting(1e-3)

    class Varied(Patient):
        gamma = setting(by_kind={"control": 0.8})

    assert default_of("gamma", Patient, "control") == default_of("gamma", Patient, "language-model") == 0.9
    assert [declared_by(Patient)[name].usual for name in ("gamma", "learning_rate")] == ["0.9", "0.001"]
    make = partial(Patient, "MlpPolicy", "CartPole-v1", device="cpu")
    assert make().gamma == make(gamma=None).gamma == 0.9 and make().learning_rate == 1e-3
    assert Varied("MlpPolicy", "CartPole-v1", device="cpu").gamma == 0.8
    assert default_of("gamma", Varied, "language-model") == 0.9 and declared_by(Varied)["gamma"].default is None
    assert "control 3e-3" in declared_by(Reinforce)["learning_rate"].usual


@pytest.mark.parametrize(
    ("annotation", "bounds", "right", "wrong"),
    [
        ("int", {"above": 0, "below": 10}, (1, 9), (0, 10)),
        ("int | float", {"above": 0, "high": 1}, (0.5, 1), (0, 1.5)),
        ("int | str", {}, ("auto", 3), ()),
        (Optional[float], {"low": 0, "high": 1}, (None, 0.5), (2,)),  # noqa: UP045
        ("Callable[[Tensor], Tensor]", {}, (str.lower,), ()),
    ],
)
def test_limits_are_honoured(annotation, bounds, right, wrong):
    facts = {"tilt": setting(1, **bounds), "__annotations__": {"tilt": annotation}, "__module__": __name__}
    one = declared_by(type("Limited", (AgentSettings,), facts))["tilt"]
    assert [one.check(value) for value in right] == list(right)
    for value in wrong:
        with pytest.raises(ValueError, match=r"^tilt must be a "):
            one.check(value)


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

    assert list(keywords(Powerful))[:2] == ["power", "baseline"]
    with pytest.raises(TypeError, match="did you mean 'power'"):
        Powerful("MlpPolicy", "CartPole-v1", powr=3.0)
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


def test_defaults_depend_on_the_kind_of_policy_and_the_class():
    assert default_of("gamma", PPO, "control") == 0.99 and default_of("gamma", PPO, "language-model") == 1.0
    assert default_of("num_epochs", PPO, "control") == 4 and default_of("num_epochs", DAPO, "control") == 1
    with pytest.raises(ValueError, match="gamma has no default for a policy of kind 'mine'; pass gamma="):
        default_of("gamma", PPO, "mine")


def test_updates_are_those_of_learn_one_by_one():
    settings = {"episodes_per_update": 4, "device": "cpu"}
    learned = Reinforce("MlpPolicy", "CartPole-v1", **settings).learn(total_episodes=12)
    agent = Reinforce("MlpPolicy", "CartPole-v1", **settings)
    seen = []
    for rollout, metrics in agent.updates(total_episodes=12):
        seen.append((len(rollout), metrics["rollout/ep_len_mean"] == float(rollout.lengths.double().mean())))
        assert agent.num_updates == len(seen)
    assert seen == [(4, True)] * 3
    assert agent.last_metrics == learned.last_metrics


def test_metrics_of_a_subclass_add_to_the_reductions():
    class Measured(PPO):
        reductions = {"train/most": Reduce.MAX}

    assert Measured.reductions == {**PPO.reductions, "train/most": Reduce.MAX}
    assert PPO.reductions["train/logp_gap_max"] is Reduce.MAX and "train/clip_fraction" in PPO.reductions


def test_a_loop_that_is_left_early_ends_its_callbacks():
    ended = []

    class Listener(BaseCallback):
        def _on_step(self):
            return True

        def _on_training_end(self):
            ended.append(self.num_timesteps)

    for _ in Reinforce("MlpPolicy", "CartPole-v1", seed=0).updates(total_episodes=100, callback=Listener()):
        break
    assert len(ended) == 1


# What a class of one's own may be called and must say; mistakes are found when it is defined, or first called.


def test_names_of_ones_own_do_not_change_how_an_agent_is_saved(tmp_path):
    """What only the library calls has no public name."""
    names = ["is_root", "moment", "random_state", "load_random_state", "restore", "set_settings"]
    names += ["fit_to_budget", "use_policy"]
    assert [name for name in names if hasattr(PPO, name)] == []

    class Own(Reinforce):
        def __init__(self, policy, env, **settings):
            vars(self).update(dict.fromkeys(names))
            super().__init__(policy, env, **settings)

    agent = Own("MlpPolicy", "CartPole-v1", device="cpu", episodes_per_update=2).learn(total_episodes=2)
    agent.save(tmp_path / "agent")
    assert Own.load(tmp_path / "agent", device="cpu").num_updates == 1


@pytest.mark.parametrize("type_", ["Any", "object", "Optional[float]", "'Alias'", "Annotated[float | None, 'x']"])
def test_a_type_that_is_not_checked_may_have_no_default(type_):
    assert type("Right", (Reinforce,), {"tilt": setting(), "__annotations__": {"tilt": type_}})


def test_a_class_may_narrow_what_it_inherits_and_make_a_value_a_setting():
    narrow = type("Narrow", (Reinforce,), {"episodes_per_update": setting(low=32)})
    assert narrow("MlpPolicy", "CartPole-v1", device="cpu", episodes_per_update=32).episodes_per_update == 32
    base = type("Base", (Reinforce,), {"factor": 0.5})
    made = type("Made", (base,), {"factor": setting(0.25), "__annotations__": {"factor": "float"}})
    assert made("MlpPolicy", "CartPole-v1", device="cpu").factor == 0.25


def test_an_agent_can_be_copied():
    agent = PPO("MlpPolicy", "CartPole-v1", device="cpu", gamma=0.5)
    assert isinstance(agent, Agent) and copy.copy(agent).gamma == copy.deepcopy(agent).gamma == 0.5
