"""Identity 8: N + M updates are N updates, a stop, a load and M updates, bit for bit."""

import json

import gymnasium as gym
import numpy as np
import pytest
import torch
from agent_kinds import each_agent_once, fitting, with_teacher
from continued import everything, run
from diagonal import diagonal
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize

import rlenv  # noqa: F401
from agents import AGENTS, Agent, Reinforce
from agents.rollouts.env_state import env_state, load_env_state
from agents.settings import declared_by
from agents.training.sb3_face import as_callback

SMALL = {"episodes_per_update": 4, "num_envs": 4, "seed": 5, "learning_rate": 2e-3, "device": "cpu"}
UNUSUAL = {
    "reinforce": {"gamma": 0.9},
    "reinforce-baseline": {"baseline": "running-mean", "returns": "episode"},
    "rloo": {"max_grad_norm": 0.3},
    "reinforce-plus-plus": {"baseline": "group-mean", "num_epochs": 2},
    "a2c": {"gae_lambda": 0.7, "vf_coef": 0.3},
    "ppo": {
        "gae_lambda": 0.6, "num_epochs": 3, "num_minibatches": 2, "clip_range": 0.1, "clip_range_vf": 0.4,
        "normalize_advantage": False,
    },
    "vapo": {"length_alpha": 0.3, "value_warmup": 1, "gae_lambda": 0.9, "clip_range_high": 0.3},
    "grpo": {"num_epochs": 2, "num_minibatches": 2, "clip_range_high": 0.3},
    "dr-grpo": {"max_steps": 40, "clip_range": 0.15},
    "dapo": {"max_rounds": 2, "overlong_buffer": 2, "clip_range_high": 0.4, "max_steps": 9, "mask_truncated": True},
    "gspo": {"num_minibatches": 2, "clip_range": 0.05, "scale": "batch", "max_ratio": 2.5},
    "cispo": {"num_epochs": 2, "max_ratio": 4.0, "scale": "batch"},
    "maxrl": {"num_minibatches": 2, "clip_range": 0.15, "kl_estimator": "k3"},
    "pkpo": {"k": 2, "baseline": "loo"},
    "gdpo": {"num_epochs": 2, "clip_range_high": 0.3},
    "sapo": {"num_epochs": 2, "gate_temperature": 2.0, "gate_temperature_negative": 3.0, "off_policy_mask": 0.1},
    "dppo": {"num_epochs": 2, "max_moved": 0.1, "max_ratio": 3.0},
    "topr": {"num_epochs": 2, "threshold": 0.25, "mismatch": "sequence-mask", "mismatch_min": 0.1, "mismatch_max": 2.0},
    "clip-cov": {"num_epochs": 2, "share": 0.1, "min_covariance": 0.1, "max_covariance": 3.0},
    "kl-cov": {"num_epochs": 2, "share": 0.1, "penalty": 0.5, "kl_in": "loss", "kl_ratio": "constant"},
    "distillation": {"num_epochs": 2, "max_ratio": 4.0, "estimator": "centred", "reward_coef": 0.5},
}  # fmt: skip
ARITH = {"verifier": "arith", "verifier_kwargs": {"digits": 1}}
UPDATES, BREAK = 2, 1


def made(name, kind, **settings):
    """Return an agent with settings that are no defaults."""
    settings = {**SMALL, "kl_coef": 0.05, **UNUSUAL.get(name, {}), **settings}
    settings = fitting(name, settings)
    if kind == "text":
        return with_teacher(AGENTS[name]("tiny", "TextGen-v0", env_kwargs=ARITH, group_size=2, **settings))
    return with_teacher(AGENTS[name]("MlpPolicy", "CartPole-v1", **settings))


def test_every_setting_of_an_agent_is_tried_with_a_value_other_than_its_default():
    of_all, elsewhere = declared_by(Agent), {"part_weights"}  # in test_gdpo.py: verdicts must have the parts
    declared = {name: {k: s for k, s in declared_by(cls).items() if s.saved} for name, cls in AGENTS.items()}
    lacking = AGENTS.keys() - UNUSUAL.keys()
    assert not lacking, f"add to UNUSUAL: {sorted(lacking)}, each with unusual values of its own settings"
    tried = {(name, key) for name, values in UNUSUAL.items() for key in values}
    usual = [(name, key) for name, key in tried if UNUSUAL[name][key] == declared[name][key].default]
    assert not usual, f"these are the defaults, which a checkpoint that forgets them has too: {usual}"
    own = {key for settings in declared.values() for key in settings} - of_all.keys() - elsewhere
    untried = sorted(own - {key for _, key in tried})
    assert not untried, f"add to UNUSUAL, for an agent that has them, unusual values of: {untried}"


@each_agent_once(text=("ppo",))
def test_a_break_changes_nothing(name, kind, tmp_path):
    whole = made(name, kind)
    wanted = run(whole, UPDATES)
    first = made(name, kind)
    begun = run(first, BREAK)
    first.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent", device="cpu")
    assert type(again) is AGENTS[name]
    assert again.settings == first.settings and again.origin == first.origin
    for setting, value in UNUSUAL.get(name, {}).items():
        assert getattr(again, setting) == value == again.settings[setting], setting
    assert everything(again) == everything(first)
    assert begun + run(again, UPDATES - BREAK) == wanted
    assert everything(again) == everything(whole)


NORMALIZING = {
    "statistics": ("CartPole-v1", {"normalize_observations": True}),
    "held noise": ("Pendulum-v1", {"normalize_observations": True, "use_sde": True, "sde_sample_freq": 4}),
}


@pytest.mark.parametrize("case", NORMALIZING)
def test_a_break_changes_nothing_for_normalized_observations_and_rewards(case, tmp_path):
    env, network = NORMALIZING[case]
    settings = {**SMALL, **UNUSUAL["ppo"], "kl_coef": 0.05, "normalize_rewards": True, "policy_kwargs": network}
    settings["env_kwargs"] = {"max_episode_steps": 50}
    whole, first = (AGENTS["ppo"]("MlpPolicy", env, **settings) for _ in range(2))
    wanted = run(whole, UPDATES)
    begun = run(first, BREAK)
    first.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent", device="cpu")
    assert everything(again) == everything(first) and again.updater.reward_scale.moments.count > 0
    assert begun + run(again, UPDATES - BREAK) == wanted
    assert everything(again) == everything(whole)


@pytest.mark.parametrize("name", ["ppo", "dapo"])
def test_a_checkpoint_written_within_a_rollout_is_of_the_moment_before(name, tmp_path):
    """Callbacks save while episodes are under way; stable-baselines3's CheckpointCallback does."""
    whole, first = made(name, "control"), made(name, "control")
    wanted = run(whole, UPDATES)

    calls = []

    def stop(local, _):
        calls.append(first.num_updates)
        if calls.count(BREAK) < 7:
            return True
        first.save(tmp_path / "agent")
        return False

    first.learn(10**6, callback=stop)
    assert first.num_updates == BREAK
    again = Agent.load(tmp_path / "agent", device="cpu")
    assert run(again, UPDATES - BREAK) == wanted[BREAK:]
    assert everything(again) == everything(whole)


def kept(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_update_that_did_not_end_is_not_saved(error, tmp_path, monkeypatch):
    agent = made("ppo", "control")
    run(agent, 1)
    agent.save(tmp_path / "agent")
    good, steps, step = kept(tmp_path), [], agent.optimizer.step

    def interrupted():
        step()
        steps.append(1)
        if len(steps) == 3:
            raise error

    monkeypatch.setattr(agent.optimizer, "step", interrupted)
    with pytest.raises(error):
        run(agent, 1)
    assert agent.updating
    with pytest.raises(RuntimeError, match=r"update 2 did not end.*'.*agent' is left as it is"):
        agent.save(tmp_path / "agent")
    assert kept(tmp_path) == good
    run(agent, 1)
    assert not agent.updating
    agent.save(tmp_path / "agent")
    assert everything(Agent.load(tmp_path / "agent", device="cpu")) == everything(agent)


def test_an_update_after_a_rollout_that_was_ended_is_of_its_own_moment(tmp_path):
    agent = made("ppo", "control")
    agent.learn(10**6, callback=lambda local, _: agent.num_timesteps < 9)
    agent.update(agent.collect_rollout(as_callback(None, agent)))
    agent.save(tmp_path / "agent")
    assert everything(Agent.load(tmp_path / "agent", device="cpu")) == everything(agent)


def test_a_curriculum_continues(tmp_path):
    kwargs = {**ARITH, "verifier_kwargs": {"levels": 2}, "curriculum": 0.01}
    settings = {**SMALL, "episodes_per_update": 16, "num_envs": 16}
    make = lambda: Reinforce("tiny", "TextGen-v0", env_kwargs=kwargs, **settings)  # noqa: E731
    whole, first = make(), make()
    for agent in (whole, first):  # a window of verdicts less those of two updates
        agent.env.reset(seed=1)
        for success in (True, False) * 112:
            agent.env.unwrapped.task.stream.curriculum.record(1, success)
        assert agent.env.unwrapped.task.level == 1
    wanted = run(whole, 4)
    run(first, 2)
    first.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent", device="cpu")
    assert run(again, 2) == wanted[2:]
    assert everything(again) == everything(whole)
    assert again.env.unwrapped.task.level == 2


def normalized(seed=3):
    return VecNormalize(make_vec_env("CartPole-v1", 4, seed=seed))


def wrapped():
    one = lambda: gym.wrappers.NormalizeReward(gym.wrappers.NormalizeObservation(gym.make("CartPole-v1")))  # noqa: E731
    return gym.vector.SyncVectorEnv([one] * 4)


def sync(slots=4):
    return gym.make_vec("CartPole-v1", num_envs=slots, vectorization_mode="sync")


def native():
    return gym.make_vec("CartPole-v1", num_envs=4, vectorization_mode="vector_entry_point")


ENVS = {
    "statistics of stable-baselines3": normalized,
    "statistics of Gymnasium": wrapped,
    "native": native,
    "processes of Gymnasium": lambda: gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="async"),
    "processes of stable-baselines3": lambda: make_vec_env(
        "CartPole-v1", 2, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "fork"}
    ),
    "single": lambda: gym.make("CartPole-v1"),
    "single text": lambda: gym.make("TextGen-v0", **ARITH),
}


@diagonal("make", ENVS, rare=["processes of stable-baselines3"])  # a fast test of these follows
def test_environments_of_ones_own_continue(make, tmp_path):
    agent = Reinforce("auto", make(), **{**SMALL, "num_envs": None})
    run(agent, 1)
    agent.save(tmp_path / "agent")
    wanted = run(agent, 1)
    again = Reinforce.load(tmp_path / "agent", env=make(), continue_env=True, device="cpu")
    assert run(again, 1) == wanted
    anew = Reinforce.load(tmp_path / "agent", env=make(), device="cpu")
    assert run(anew, 1) != wanted
    for each in (agent, again, anew):
        each.env.close()


class Fading(gym.Wrapper):
    """Pays by a factor that lasts longer than an episode."""

    factor = 1.0

    def step(self, action):
        self.factor *= 0.9
        obs, reward, *rest = self.env.step(action)
        return obs, reward * self.factor, *rest

    def state_dict(self):
        return {"factor": self.factor}

    def load_state_dict(self, state):
        self.factor = state["factor"]


class Simulated(gym.Env):
    """An environment around a simulator that it calls `env`."""

    def __init__(self):
        self.env = object()
        self.observation_space, self.action_space = gym.spaces.Box(-9, 9, (2,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.normal(size=2).astype(np.float32), {}

    def step(self, action):
        return self.np_random.normal(size=2).astype(np.float32), self.np_random.random(), True, False, {}


@pytest.mark.parametrize("make", [lambda: Fading(gym.make("CartPole-v1")), Simulated], ids=["wrapper", "simulator"])
def test_what_lasts_longer_than_an_episode_continues(make, tmp_path):
    whole, first = (Reinforce("auto", make(), **{**SMALL, "num_envs": None}) for _ in range(2))
    wanted = run(whole, 3)
    run(first, 2)
    first.save(tmp_path / "agent")
    again = Reinforce.load(tmp_path / "agent", env=make(), continue_env=True, device="cpu")
    assert run(again, 1) == wanted[2:]


def test_an_error_in_a_state_dict_is_not_hidden():
    env = Fading(Simulated())
    del Fading.factor
    try:
        with pytest.raises(AttributeError, match="factor"):
            env_state(env)
    finally:
        Fading.factor = 1.0


class Silent(SubprocVecEnv):
    """Keeps its environments to itself."""

    def __init__(self):
        self.seeds = []
        super().__init__([lambda: gym.make("CartPole-v1")] * 2, "fork")

    def reset(self):
        self.seeds.append(self._seeds[0])
        return super().reset()

    def get_attr(self, attr_name, indices=None):
        if attr_name == "render_mode":
            return [None] * 2
        raise NotImplementedError


def test_an_environment_that_says_nothing_is_trained_in_and_seeded_anew_after_a_break(tmp_path):
    agent = Reinforce("auto", Silent(), **{**SMALL, "num_envs": None})
    run(agent, 2)
    with pytest.warns(UserWarning, match="nothing of .* can be kept"):
        agent.save(tmp_path / "agent")
    agent.save(tmp_path / "agent")
    agent.env.close()
    seeds = []
    for _ in range(2):
        env = Silent()
        with pytest.warns(UserWarning, match="nothing of .* can be kept"):
            again = Reinforce.load(tmp_path / "agent", env=env, continue_env=True, device="cpu")
        run(again, 2)
        seeds.append(env.seeds)
        env.close()
    assert seeds[0] == seeds[1] and seeds[0][0] not in (None, SMALL["seed"]) and seeds[0][1] is None


def text_slots():
    return gym.make_vec("TextGen-v0", num_envs=1, vectorization_mode="async", **ARITH)


def normalized_slots():
    make = lambda: gym.wrappers.NormalizeReward(gym.make("CartPole-v1"))  # noqa: E731
    return make_vec_env(make, 1, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "fork"})


@pytest.mark.parametrize("make", [pytest.param(text_slots, marks=pytest.mark.slow), normalized_slots])
def test_what_other_processes_hold_is_not_lost_silently(make, tmp_path):
    agent = Reinforce("auto", make(), **{**SMALL, "num_envs": None})
    run(agent, 1)
    with pytest.warns(UserWarning, match="only the random generators of"):
        agent.save(tmp_path / "agent")
    agent.env.close()
    agent.save(tmp_path / "agent")
    with pytest.warns(UserWarning, match="only the random generators of"):
        Reinforce.load(tmp_path / "agent", env=make(), continue_env=True, device="cpu").env.close()


def test_slots_and_groups_of_ones_own_start_anew(tmp_path):
    agent = made("reinforce", "text")
    run(agent, 1)
    agent.save(tmp_path / "agent")
    one = Agent.load(tmp_path / "agent", num_envs=1, group_size=1, device="cpu")
    assert one.num_envs == 1 and one.env.unwrapped.state_dict()["next_episode"] == 0
    run(one, 1)
    made("reinforce", "control").save(tmp_path / "pole")
    run(Agent.load(tmp_path / "pole", num_envs=1, device="cpu"), 1)


def test_a_seed_of_ones_own_counts(tmp_path):
    agent = made("reinforce", "control")
    run(agent, 1)
    agent.save(tmp_path / "agent")
    streams = [
        run(Agent.load(tmp_path / "agent", device="cpu", **seed), 1) for seed in ({"seed": 77}, {"seed": 77}, {})
    ]
    assert streams[0] == streams[1] != streams[2]


def test_another_environment_is_refused(tmp_path):
    agent = made("reinforce", "control")
    run(agent, 1)
    agent.save(tmp_path / "agent")
    for env, message in (
        (sync(3), "has 4 slots; this environment 3 .*continue_env=False"),
        (native(), "is of another environment"),
    ):
        with pytest.raises(ValueError, match=message):
            Reinforce.load(tmp_path / "agent", env=env, continue_env=True, device="cpu")


def test_what_was_recorded_but_not_written_is_written_after_the_break(tmp_path, request):
    def logged(agent, folder):
        agent.set_logger(configure(str(folder), ["csv"]))
        request.addfinalizer(agent.logger.close)
        return agent

    agent = logged(made("reinforce", "control"), tmp_path / "a")
    agent.learn(1, log_interval=10)
    agent.logger.record("mine/once", 3.0)
    agent.save(tmp_path / "agent")
    Agent.load(tmp_path / "agent", device="cpu").save(tmp_path / "copy")
    again = logged(Agent.load(tmp_path / "copy", device="cpu"), tmp_path / "b")
    again.learn(1, log_interval=2, reset_num_timesteps=False)
    header, row = (tmp_path / "b" / "progress.csv").read_text().splitlines()
    assert dict(zip(header.split(","), row.split(","), strict=True))["mine/once"] == "3.0"


def test_a_checkpoint_keeps_what_its_caller_adds_and_names_anything_else(tmp_path):
    agent = made("reinforce", "control")
    array = np.arange(6.0)[::2]
    array.flags.writeable = False
    agent.extra_state = {"array": array, "scalar": np.float32(0.5), "whole": np.int64(3), "yes": np.bool_(True)}
    agent.extra_state |= {"note": "later", "numbers": [1, 2.5, None], "moments": torch.arange(3.0)}
    agent.save(tmp_path / "agent")
    back = Agent.load(tmp_path / "agent", device="cpu").extra_state
    assert type(back["array"]) is np.ndarray and back.pop("array").tolist() == [0.0, 2.0, 4.0]
    assert torch.equal(back.pop("moments"), torch.arange(3.0))
    assert back == {"scalar": 0.5, "whole": 3, "yes": True, "note": "later", "numbers": [1, 2.5, None]}
    for value, kind in (({1}, "set"), (object(), "object"), (np.array([None]), "object")):
        agent.extra_state = {"mine": [1, {"deep": value}]}
        with pytest.raises(TypeError, match=rf"extra/mine\[1\]/deep cannot be saved: .*{kind}"):
            agent.save(tmp_path / "agent")


def test_a_reference_that_was_changed_is_noticed_when_saving(tmp_path):
    agent = made("rloo", "control")
    run(agent, 1)
    agent.save(tmp_path / "agent")
    with torch.no_grad():
        next(iter(agent.anchor.reference.parameters())).add_(1e-3)
    with pytest.raises(RuntimeError, match="the KL reference have changed"):
        agent.save(tmp_path / "agent")


def test_tensors_of_a_checkpoint_have_aligned_memory_of_their_own(tmp_path):
    """Matrix products round differently at other addresses, such as those of a file that is mapped into memory."""
    agent = made("ppo", "text", kl_coef=0.1)
    run(agent, 1)
    agent.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent", device="cpu")
    moments = again.policy_optimizer.adam.state_dict()["state"].values()
    tensors = [*again.policy.parameters(), *again.anchor.reference.parameters()]
    tensors += [tensor for each in moments for tensor in each.values()]
    assert {tensor.data_ptr() % 64 for tensor in tensors} == {0}


def test_numpy_generators_of_every_kind_come_back():
    for bits in (np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64, np.random.MT19937):
        env = gym.make("CartPole-v1")
        env.unwrapped.np_random = np.random.Generator(bits(3))
        env.reset()
        state = json.loads(json.dumps(env_state(env)))
        wanted = [env.reset()[0].tolist() for _ in range(3)]
        load_env_state(env, state)
        assert [env.reset()[0].tolist() for _ in range(3)] == wanted
