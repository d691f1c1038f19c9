"""Every agent shows all its settings, names a typo, and can be watched update by update."""

import inspect
import re
import typing

import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback

from agents import AGENTS, DAPO, GRPO, GSPO, PPO, Agent, LanguageModelPolicy, Reinforce, ReinforceBaseline
from agents.algorithms import _actor_critic, gspo, ppo
from agents.core import trl_names
from agents.core.defaults import default_of
from agents.core.settings import AgentSettings, LearnerSettings
from agents.learner.metrics import Reduce
from agents.trainer import proximal


def keywords(cls):
    return {p.name: p for p in inspect.signature(cls).parameters.values() if p.kind is p.KEYWORD_ONLY}


@pytest.mark.parametrize("cls", AGENTS.values(), ids=AGENTS)
def test_a_signature_shows_every_setting_with_its_default(cls):
    shown = keywords(cls)
    assert list(inspect.signature(cls).parameters)[:2] == ["policy", "env"]
    assert set(AgentSettings.__annotations__) <= set(shown)
    assert all(p.default is not p.empty for p in shown.values())


def test_type_checkers_are_told_what_the_constructors_take():
    told = {
        Agent: AgentSettings,
        proximal.PassesAgent: proximal.PassesSettings,
        proximal.ProximalAgent: proximal.ProximalSettings,
        _actor_critic.ActorCritic: _actor_critic.ActorCriticSettings,
    }
    for cls, settings in told.items():
        types = {name: parameter.annotation for name, parameter in keywords(cls).items()} if cls is not Agent else {}
        assert set(settings.__annotations__) == set(keywords(cls)) | set(LearnerSettings.__annotations__)
        for name, kind in types.items():
            assert settings.__annotations__[name].__forward_arg__ == kind
    own = set(keywords(PPO)) - {"normalize_advantage", "clip_range_vf"}
    assert set(typing.get_type_hints(ppo.PPOSettings)) == own
    assert set(typing.get_type_hints(gspo.GSPOSettings)) == set(keywords(GSPO)) - {"clip_range", "clip_range_high"}
    assert keywords(DAPO)["clip_range_high"].default == 0.28
    assert [keywords(GSPO)[name].default for name in ("clip_range", "clip_range_high")] == [3e-4, 4e-4]


@pytest.mark.parametrize(
    ("cls", "typo", "meant"),
    [(PPO, "num_epoch", "num_epochs"), (Reinforce, "learning_rat", "learning_rate"), (DAPO, "max_round", "max_rounds")],
)
def test_a_typo_is_one_line_with_what_was_meant_and_what_is_allowed(cls, typo, meant):
    with pytest.raises(TypeError, match=f"^{cls.__name__} has no setting '{typo}'; did you mean '{meant}'") as error:
        cls("MlpPolicy", "CartPole-v1", **{typo: 1})
    assert "\n" not in str(error.value) and str(error.value).endswith(", ".join(inspect.signature(cls).parameters))


class Powerful(ReinforceBaseline):
    """A user's own algorithm with a setting of its own."""

    def __init__(self, policy, env, *, power=2.0, **settings):
        super().__init__(policy, env, **settings)
        self.power = power


def test_a_setting_of_ones_own_is_shown_checked_saved_and_loaded(tmp_path):
    assert list(keywords(Powerful))[:2] == ["power", "baseline"]
    with pytest.raises(TypeError, match="did you mean 'power'"):
        Powerful("MlpPolicy", "CartPole-v1", powr=3.0)
    Powerful("MlpPolicy", "CartPole-v1", power=3.0, device="cpu").save(tmp_path / "agent")
    assert Powerful.load(tmp_path / "agent", device="cpu").power == 3.0


def test_a_checkpoint_of_fused_adam_goes_on_without_it():
    """Fused kernels bypass autograd's version counter, by which caches see that weights have changed."""
    agent = Reinforce("MlpPolicy", "CartPole-v1", episodes_per_update=2, device="cpu").learn(1)
    state = agent.training_state()
    state["optimizer"]["adam"]["param_groups"][0]["fused"] = True
    agent.load_training_state(state)
    before = [parameter._version for parameter in agent.policy.actor_parameters()]
    agent.learn(1)
    assert all(p._version > version for p, version in zip(agent.policy.actor_parameters(), before, strict=True))


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


def test_numbers_of_any_library_are_saved(tmp_path):
    agent = Reinforce(
        "MlpPolicy", "CartPole-v1", kl_coef=np.float32(0.25), learning_rate=np.float32(0.5), seed=np.int64(3)
    )
    assert agent.settings["kl_coef"] == 0.25 and agent.settings["learning_rate"] == 0.5
    agent.save(tmp_path / "agent")
    again = Reinforce.load(tmp_path / "agent")
    assert again.anchor.coef == 0.25 and again.settings == agent.settings


def test_the_settings_of_a_class_of_ones_own_are_saved_whatever_its_constructor_takes(tmp_path):
    class Pole(Reinforce):
        def __init__(self, seed=0, bonus=0.1):
            super().__init__("MlpPolicy", "CartPole-v1", seed=seed, gamma=0.5)
            self.bonus = bonus

    agent = Pole(seed=4, bonus=0.2)
    assert agent.settings["gamma"] == 0.5 and agent.settings["seed"] == 4 and agent.settings["bonus"] == 0.2
    agent.save(tmp_path / "agent")
    with pytest.raises(ValueError, match=r"holds an agent of a class of your own: call that class's load\(\)"):
        Agent.load(tmp_path / "agent")


def test_a_wrong_setting_is_found_before_the_policy_is_made():
    for wrong in ({"kl_in": "los"}, {"seed": -1}, {"num_epochs": 0}, {"gae_lambda": 2.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            PPO("no-such-model", "CartPole-v1", **wrong)


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

    agent = Reinforce("MlpPolicy", "CartPole-v1", seed=0)
    for _ in agent.updates(total_episodes=100, callback=Listener()):
        break
    assert len(ended) == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("num_generations", "TRL's num_generations is 'group_size' here; allowed: "),
        ("max_completion_length", "is env_kwargs={'max_new_tokens': ...} here; allowed: "),
        ("max_steps", "TRL's max_steps is learn(total_episodes="),
        ("scale_rewards", "grpo divides by the group's standard deviation"),
        ("max_steps", "learn(total_episodes=max_steps * episodes_per_update) here; allowed: "),
        (
            "gradient_accumulation_steps",
            "here, which counts the episodes of a pass: episodes_per_update / gradient_accumulation_steps; allowed: ",
        ),
        (
            "per_device_train_batch_size",
            "per_device_train_batch_size x gradient_accumulation_steps x devices; allowed: ",
        ),
        ("bf16", "TRL's bf16 is policy_kwargs={'dtype': 'bfloat16'} here; allowed: "),
        ("gradient_checkpointing", "is policy_kwargs={'activation_checkpointing': True} here; allowed: "),
        ("use_peft", "is policy_kwargs={'lora_rank': 16} here; allowed: "),
        ("peft_config", "policy_kwargs={'lora_rank': ..., 'lora_alpha': ..., 'lora_targets': ...} here; allowed: "),
        ("report_to", "TRL's report_to is tensorboard_log=FOLDER, or a callback here; allowed: "),
        ("lr", "GRPO has no setting 'lr'; did you mean 'learning_rate'? allowed: "),
    ],
)
def test_a_name_of_trl_is_answered_with_ours(name, said):
    with pytest.raises(TypeError, match=re.escape(said)):
        GRPO("MlpPolicy", "CartPole-v1", **{name: 1})


def test_every_name_that_a_hint_gives_exists():
    allowed = {name for cls in AGENTS.values() for name in inspect.signature(cls).parameters}
    assert set(trl_names.NAMES.values()) - set(trl_names.ENV) <= allowed
    taken = allowed & trl_names.ALL
    of_policies = set(inspect.signature(LanguageModelPolicy).parameters)
    assert {name for each in trl_names.POLICY.values() for name in each} <= of_policies
    assert set(trl_names.SHORT.values()) <= allowed and trl_names.UNITS.keys() <= trl_names.ALL
    assert taken == {"max_steps"}, "of dr-grpo, the longest episode; the others do not know it"
