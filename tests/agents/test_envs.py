"""How long an episode may be, by whoever says it; what is closed; and tools of stable-baselines3."""

import multiprocessing
import traceback
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from counting_env import SEEN, Somebody
from diagonal import slow
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from refused import refusal
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv
from tabular import TabularPolicy, tiny_world
from tiny_models import text_envs, tiny_model

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv import agents
from rlenv.agents import DAPO, PPO, DrGRPO, Reinforce
from rlenv.agents.errors import UserCodeError
from rlenv.agents.rollouts.envs import find_spec, step_limit
from rlenv.agents.rollouts.no_autoreset import NoAutoresetVectorEnv
from rlenv.agents.rollouts.sb3_envs import FromVecEnv, slot_info

SMALL = {"episodes_per_update": 4, "device": "cpu"}


def test_agents_that_need_the_longest_episode_take_it_from_the_environment():
    def longest(agent):
        return step_limit(agent.env, agent.max_steps)

    pole = DrGRPO("MlpPolicy", "CartPole-v1", device="cpu")
    assert longest(pole) == 500 and longest(DrGRPO("MlpPolicy", "CartPole-v1", max_steps=90, device="cpu")) == 90
    pole.set_env(gym.make("CartPole-v1", max_episode_steps=50))
    assert longest(pole) == 50
    text = {"env": "TextGen-v0", "env_kwargs": {"verifier": "arith", "max_new_tokens": 6}, "device": "cpu"}
    assert longest(DrGRPO("tiny", **text)) == longest(DAPO("tiny", overlong_buffer=2, **text)) == 6
    assert longest(DAPO(tiny_model("gpt2"), text_envs(4, group_size=4), overlong_buffer=2, device="cpu")) == 12
    silent = DAPO(TabularPolicy(), tiny_world(), device="cpu")
    assert silent.max_steps is None and silent.overlong_buffer == 0, "without a penalty nobody has to say"


def test_a_version_that_is_gone_is_not_looked_for_in_another_package():
    assert refusal(lambda: find_spec("Taxi-v3"), "'Taxi-v3'").endswith("Please use `Taxi-v4` instead")


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


# Environments of somebody's.


class Raising(Somebody):
    """Notes the calls of its methods, of which one may raise an exception."""

    def __init__(self, raises=""):
        super().__init__(then=(SEEN, 1.0, False, False, {}))
        self.raises, self.calls = raises, []
        self.called("__init__")

    def called(self, name):
        self.calls.append(name)
        if name == self.raises:
            raise OSError(f"no {self.raises}")

    def reset(self, *, seed=None, options=None):
        self.called("reset")
        return self.first

    def step(self, action):
        self.called("step")
        return self.then


@pytest.fixture
def somebodys(monkeypatch):
    """Return the id of the environment in Gymnasium's registry."""
    monkeypatch.setitem(gym.registry, "Somebody-v0", EnvSpec("Somebody-v0", Raising, max_episode_steps=9))
    return "Somebody-v0"


@pytest.mark.parametrize("skip_finished", [False, True])
@pytest.mark.parametrize("method", ["__init__", "reset", "step"])
def test_an_exception_of_somebodys_class_is_the_cause_of_ours_and_begins_in_it(somebodys, method, skip_finished):
    with pytest.raises(UserCodeError) as refused:
        envs = agents.make_envs(somebodys, 2, {"raises": method}, skip_finished)
        envs.reset(seed=0)
        envs.step(np.zeros(2, np.int64))
    assert str(refused.value) == f"environment Raising: {method} raised OSError: no {method}"
    cause = refused.value.__cause__
    assert isinstance(cause, OSError)
    first, *_ = traceback.extract_tb(cause.__traceback__)
    assert first.name == method and first.line == f'self.called("{method}")', "not a line of Gymnasium or of ours"


@pytest.mark.parametrize("skip_finished", [False, True])
def test_the_first_reset_and_the_first_step_are_checked_and_later_ones_are_the_classes_own(somebodys, skip_finished):
    envs = agents.make_envs(somebodys, 2, None, skip_finished)
    assert envs.spec is None or envs.spec.id == somebodys
    envs.reset(seed=0)
    envs.step(np.zeros(2, np.int64))
    for env in envs.envs:
        while isinstance(env, gym.Wrapper):
            assert not {"reset", "step"} & vars(env).keys()
            env = env.env
        assert env.calls == ["__init__", "reset", "step"] and not {"reset", "step"} & vars(env).keys()
        env.then = (SEEN, "1", False, False, {})  # which numpy reads as a number, as it did at the first step
    assert envs.step(np.zeros(2, np.int64))[1].tolist() == [1.0, 1.0]


def test_gymnasium_warns_of_what_can_be_stored():
    envs = agents.make_envs(Somebody(then=(SEEN, "1", True, False, {})), 1, None)
    envs.reset(seed=0)
    with pytest.warns(UserWarning, match="reward returned by `step..` must be a float"):
        envs.step(np.zeros(1, np.int64))


@pytest.mark.filterwarnings("ignore:.*obs returned by the `reset")
def test_an_evaluation_warns_of_actions_that_nan_has_chosen():
    env = Somebody(first=(SEEN * np.nan, {}))
    with pytest.warns(UserWarning, match="evaluate: the log-probability of an action is NaN"):
        Reinforce("MlpPolicy", env, **SMALL).evaluate(env, 1)


def plain(value):
    """Return a value without numpy's types."""
    return {key: plain(one) for key, one in value.items()} if isinstance(value, dict) else np.asarray(value).tolist()


TOLD = [(1, 0.5, None), ({"a": 1}, 2, {"a": 3}), (None, {"a": 1}, 2.0), (np.zeros(2), np.zeros(3), "x"), (True, 7, 1.0)]


@pytest.mark.parametrize("make", [NoAutoresetVectorEnv, lambda fns: FromVecEnv(DummyVecEnv(fns))], ids=["own", "SB3"])
@pytest.mark.parametrize("told", TOLD, ids=str)
def test_infos_of_slots_may_be_of_different_kinds_under_one_name(told, make):
    infos = [{"told": value} for value in told]
    envs = make([partial(Somebody, first=(SEEN, info), then=(SEEN, 1.0, False, False, info)) for info in infos])
    envs.reset(seed=0)
    *_, infos = envs.step(np.zeros(3, np.int64))
    assert [plain(slot_info(infos, slot)["told"]) for slot in range(3)] == list(map(plain, told))


def test_infos_that_mean_something_else_in_somebodys_environment_are_left_alone():
    told = {"level": "easy", "turns": np.zeros(2), "verdict": "guilty", "group": 3, "is_success": True}
    env = Somebody(first=(SEEN, told), then=(SEEN, 1.0, True, False, told))
    rollout, metrics = next(PPO("MlpPolicy", env, **SMALL).updates(total_episodes=4))
    assert rollout.extras == {} and metrics["rollout/success_rate"] == 1.0 and not rollout.groups.any()


def test_a_method_that_somebody_put_into_an_object_stays_there():
    env = Somebody()
    env.step = own = lambda action: (SEEN, 7.0, True, False, {})
    envs = agents.make_envs(env, 1, None, True)
    envs.reset(seed=0)
    assert envs.step(np.zeros(1, np.int64))[1].tolist() == [7.0] and env.step is own


class Forgetful(DummyVecEnv):
    """Does not say what an episode saw last, as the `VecEnv`s of some libraries."""

    def step_wait(self):
        *seen, infos = super().step_wait()
        return *seen, [{key: info[key] for key in info if key != "terminal_observation"} for info in infos]


def test_the_last_observation_is_asked_for_only_where_an_episode_was_cut_off():
    over, cut = ((SEEN, 1.0, end, not end, {}) for end in (True, False))
    one, other = (PPO("MlpPolicy", Forgetful([partial(Somebody, then=then)]), **SMALL) for then in (over, cut))
    assert one.learn(total_episodes=4).last_metrics["rollout/ep_rew_mean"] == 1.0
    refusal(lambda: other.learn(total_episodes=4), "has no final_obs", "cut off")


# Environments of ours are environments to stable-baselines3.


OWN = {
    "native": lambda: gym.make_vec("CartPole-v1", num_envs=3),
    "recorded": lambda: RecordEpisodeStatistics(gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")),
    **{mode.name: lambda mode=mode: SyncVectorEnv([pole] * 3, autoreset_mode=mode) for mode in AutoresetMode},
}


def pole():
    return gym.make("CartPole-v1")


@pytest.mark.parametrize("name", ["native", "recorded", slow("NEXT_STEP"), slow("SAME_STEP"), "DISABLED"])
def test_evaluate_policy_on_the_agents_own_environment_sees_whole_episodes(name):
    agent = Reinforce("MlpPolicy", OWN[name](), episodes_per_update=4, device="cpu").learn(1)
    rewards, lengths = evaluate_policy(agent, agent.get_env(), 9, return_episode_rewards=True)
    assert len(rewards) == 9 and rewards == lengths and min(lengths) > 5, "a pole pays 1 at every step"
    assert agent.get_env().num_envs == agent.n_envs == 3
    assert agent.learn(1, reset_num_timesteps=False).num_updates == 2


def test_options_reach_the_next_reset_and_no_later_one(monkeypatch):
    env, given = SyncVectorEnv([pole] * 2), []
    reset = env.reset
    monkeypatch.setattr(env, "reset", lambda **how: given.append(how["options"]) or reset(**how))
    venv = agents.as_vec_env(env)
    venv.set_options({"low": -0.01, "high": 0.01})
    assert abs(venv.reset()).max() < 0.01 < abs(venv.reset()).max() and given == [{"low": -0.01, "high": 0.01}, None]
    venv.set_options([{"low": -0.01}, {}])
    refusal(venv.reset, "options of the slots", "differ")


@pytest.mark.parametrize("mode", ["vector_entry_point", "sync"])
def test_pictures_of_all_slots_are_tiled(mode):
    text = {"verifier": "arith", "render_mode": "rgb_array", "vectorization_mode": mode}
    env = agents.as_vec_env(gym.make_vec("TextGen-v0", num_envs=4, **text))
    env.reset()
    height, width, _ = env.get_images()[0].shape
    assert env.render().shape == (2 * height, 2 * width, 3)


def test_evaluate_policy_waits_for_verdicts_that_come_late():
    env = {"verifier": "length", "verifier_workers": 1, "problems": ["ab"], "test_fraction": 0.0, "max_new_tokens": 3}
    agent, infos = Reinforce("tiny", "TextGen-v0", env_kwargs=env, episodes_per_update=4, device="cpu"), []
    assert agent.env.metadata["late_verdicts"]
    agent.learn(1)
    note = lambda local, _: infos.append(local["info"]) if local["done"] else None  # noqa: E731
    rewards, _ = evaluate_policy(agent, agent.get_env(), 6, return_episode_rewards=True, callback=note)
    assert len(rewards) == 6 and {info["verdict_status"] for info in infos[:6]} == {"ok"}
    assert all(info["episode"]["l"] <= 3 and "terminal_observation" in info for info in infos)
    agent.env.close()
