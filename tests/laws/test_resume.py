"""Identity 8: N + M updates are N updates, a stop, a load and M updates, bit for bit, in every kind of run."""

import json
import random

import gymnasium as gym
import numpy as np
import pytest
import torch
from agent_kinds import fitting, with_teacher
from continued import everything, run
from diagonal import diagonal, slow
from dialogues import talking
from gymnasium.envs.classic_control import CartPoleEnv
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize

import rlenv  # noqa: F401
from rlenv.agents import AGENTS, RLOO, Agent, Reinforce
from rlenv.agents.rollouts.env_state import env_state, load_env_state

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
    "grpo": {"num_epochs": 2, "num_minibatches": 2, "clip_range_high": 0.3, "target_kl": 0.01},
    "dr-grpo": {"max_steps": 40, "clip_range": 0.15},
    "dapo": {"max_rounds": 2, "overlong_buffer": 2, "clip_range_high": 0.4, "max_steps": 9, "mask_truncated": True},
    "gspo": {"num_minibatches": 2, "clip_range": 0.05, "scale": "batch", "max_ratio": 2.5},
    "luspo": {"num_epochs": 2, "clip_range": 0.05, "clip_range_high": 0.06},
    "gmpo": {"num_epochs": 2, "clip_range": 0.2, "clip_range_high": 0.3, "scale_by_ess": True},
    "cispo": {"num_epochs": 2, "max_ratio": 4.0, "scale": "batch"},
    "maxrl": {"num_minibatches": 2, "clip_range": 0.15, "kl_estimator": "k3"},
    "pkpo": {"k": 2, "baseline": "loo"},
    "gdpo": {"num_epochs": 2, "clip_range_high": 0.3},
    "sapo": {"num_epochs": 2, "gate_temperature": 2.0, "gate_temperature_negative": 3.0, "off_policy_mask": 0.1},
    "vespo": {
        "num_epochs": 2, "power": 1.0, "decay": 1.0, "power_negative": 2.0, "decay_negative": 1.0,
        "mismatch": "token-mask", "mismatch_max": 2.0,
    },
    "dppo": {"num_epochs": 2, "max_moved": 0.1, "max_ratio": 3.0},
    "topr": {"num_epochs": 2, "threshold": 0.25, "mismatch": "sequence-mask", "mismatch_min": 0.1, "mismatch_max": 2.0},
    "delightful": {"baseline": "running-mean", "gate_width": 0.5},
    "clip-cov": {"num_epochs": 2, "share": 0.1, "min_covariance": 0.1, "max_covariance": 3.0},
    "kl-cov": {"num_epochs": 2, "share": 0.1, "penalty": 0.5, "kl_in": "loss",
               "kl_estimator": "k2", "kl_ratio": "constant"},
    "distillation": {"num_epochs": 2, "max_ratio": 4.0, "estimator": "centred", "reward_coef": 0.5},
    "sdpo": {"average_rate": 0.2, "divergence": "jensen-shannon", "max_hint_tokens": 9, "reward_coef": 0.5},
}  # fmt: skip
ARITH = {"verifier": "arith", "verifier_kwargs": {"digits": 1}}
TEXT = {"env": "TextGen-v0", "env_kwargs": ARITH, "group_size": 2}
CHOSEN = {"problems": [f"{n}+1=" for n in range(9)], "test_fraction": 0.0, "prompt_choice": "thompson"}
NORMALIZING = {"normalize_rewards": True, "env_kwargs": {"max_episode_steps": 50}}
HELD = {"use_sde": True, "sde_sample_freq": 4}
KINDS = {
    "control": {"env": "CartPole-v1"},
    "statistics": {"env": "CartPole-v1", **NORMALIZING, "policy_kwargs": {"normalize_observations": True}},
    "held noise": {"env": "Pendulum-v1", **NORMALIZING, "policy_kwargs": {"normalize_observations": True, **HELD}},
    "text": TEXT,
    "prompts played again": {**TEXT, "baseline": "greedy"},
    "chosen prompts": {**TEXT, "env_kwargs": ARITH | CHOSEN},
    "chosen late": {**TEXT, "env_kwargs": ARITH | CHOSEN | {"late_verdicts": True}},
}
# Of the fast ones: a running mean, a critic that warms up, rounds, passes, a gate, a teacher. PPO has most of text.
CARRYING = ("reinforce-baseline", "vapo", "dapo", "gspo", "delightful", "distillation")


def made(name, kind="control", **settings):
    """Return an agent with settings that are not defaults, and its teacher if it needs one."""
    settings = fitting(name, {**SMALL, "kl_coef": 0.05, **UNUSUAL[name], **KINDS[kind], **settings})
    model = "tiny" if settings["env"] == "TextGen-v0" else "MlpPolicy"
    return with_teacher(AGENTS[name](model, **settings))


def check_a_break_changes_nothing(make, folder, updates=2, stop=1, **env):
    """Compare a run of so many updates with one that is stopped, loaded and continued; return its agents."""
    whole, first = make(), make()
    wanted = run(whole, updates)
    torch.rand(1), random.random(), np.random.random()  # noqa: NPY002 (global generators have no effect)
    before = torch.get_rng_state(), random.getstate(), str(np.random.get_state())  # noqa: NPY002
    begun = run(first, stop)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), str(np.random.get_state()))  # noqa: NPY002
    first.save(folder)
    again = Agent.load(folder, device="cpu", **env)
    assert type(again) is type(first) and again.settings == first.settings and again.origin == first.origin
    assert everything(again) == everything(first)
    assert begun + run(again, updates - stop) == wanted
    assert everything(again) == everything(whole)
    return whole, first, again


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "control") if name in CARRYING else slow(name, "control") for name in AGENTS if name != "sdpo"),
        *((name, "text") if name in ("ppo", "sdpo") else slow(name, "text") for name in AGENTS),
        *(slow("ppo", "statistics"), ("ppo", "held noise"), ("reinforce-baseline", "prompts played again")),
        *(slow("reinforce", "chosen prompts"), ("reinforce", "chosen late")),
    ],
)
def test_a_break_changes_nothing(name, kind, tmp_path):
    *_, again = check_a_break_changes_nothing(lambda: made(name, kind), tmp_path / "agent")
    for setting, value in UNUSUAL[name].items():
        wanted = KINDS[kind].get(setting, value)
        assert getattr(again, setting) == wanted == again.settings[setting], setting
    assert (again.reward_scale.moments.count > 0) == ("normalize_rewards" in KINDS[kind])


def test_a_curriculum_continues(tmp_path):
    world = {**ARITH, "verifier_kwargs": {"levels": 2}, "curriculum": 0.01}

    def make():
        """Return an agent whose curriculum has a window of verdicts less those of two updates."""
        agent = made("reinforce", "text", env_kwargs=world, group_size=None, episodes_per_update=16, num_envs=16)
        agent.env.reset(seed=1)
        for success in (True, False) * 112:
            agent.env.unwrapped.task.stream.curriculum.record(1, success)
        return agent

    *_, again = check_a_break_changes_nothing(make, tmp_path / "agent", 4, 2)
    first, last = (agent.env.unwrapped.task.stream.curriculum.level for agent in (make(), again))
    assert first == 1 and last == 2


@pytest.mark.parametrize("mode", ["Disabled", slow("NextStep"), slow("SameStep")])
def test_a_kill_in_the_middle_of_a_rollout_with_late_replies_changes_nothing(mode, tmp_path):
    """Replies come when the clock says; that they do not decide anything makes the rollout a replay."""
    envs = []

    def talk():
        envs.append(talking(8, mode, group_size=4, verifier_workers=1, late_replies=True))
        return envs[-1]

    def make():
        return RLOO("tiny", talk(), episodes_per_update=16, seed=3, device="cpu")

    whole, killed, _ = check_a_break_changes_nothing(make, tmp_path / "agent", env=talk(), continue_env=True)
    steps, step = [], killed.env.step

    def kill(actions):
        out = step(actions)
        steps.append(out)
        if len(steps) > 6 and "waiting" in out[4]:
            raise KeyboardInterrupt
        return out

    killed.env.step = kill
    with pytest.raises(KeyboardInterrupt):
        run(killed, 1)
    del killed.env.step  # the same process can go on, too: nothing of the broken rollout is left
    again = Agent.load(tmp_path / "agent", env=killed.env, continue_env=True, device="cpu")
    run(again, 1)
    assert everything(again) == everything(whole)
    for each in envs:
        each.close()


@pytest.mark.parametrize("name", ["ppo", "dapo"])
def test_a_checkpoint_written_within_a_rollout_is_of_the_moment_before(name, tmp_path):
    """Callbacks save while episodes are under way; stable-baselines3's CheckpointCallback does."""
    whole, first, calls = made(name), made(name), []
    wanted = run(whole, 2)

    def stop(*_):
        calls.append(first.num_updates)
        if calls.count(1) < 7:
            return True
        first.save(tmp_path / "agent")
        return False

    first.learn(10**6, callback=stop)
    again = Agent.load(tmp_path / "agent", device="cpu")
    assert first.num_updates == 1 and run(again, 1) == wanted[1:]
    assert everything(again) == everything(whole)


# Environments of one's own.


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


class Simulated(CartPoleEnv):
    """An environment around a simulator that it calls `env`."""

    def __init__(self):
        super().__init__()
        self.env = object()


def pole(wrap=lambda env: env):
    return lambda: wrap(gym.make("CartPole-v1"))


def both(env):
    return gym.wrappers.NormalizeReward(gym.wrappers.NormalizeObservation(env))


ENVS = {
    "statistics of stable-baselines3": lambda: VecNormalize(make_vec_env("CartPole-v1", 4, seed=3)),
    "statistics of Gymnasium": lambda: gym.vector.SyncVectorEnv([pole(both)] * 4),
    "native": lambda: gym.make_vec("CartPole-v1", 4, vectorization_mode="vector_entry_point"),
    "processes of Gymnasium": lambda: gym.make_vec("CartPole-v1", 2, vectorization_mode="async"),
    "processes of stable-baselines3": lambda: SubprocVecEnv([pole()] * 2, "fork"),
    "single": pole(),
    "single text": lambda: gym.make("TextGen-v0", **ARITH),
    "text that restarts": lambda: gym.make_vec("TextGen-v0", num_envs=4, autoreset_mode="SameStep", **ARITH),
    "wrapper": pole(Fading),
    "simulator": Simulated,
}


def own(env):
    return Reinforce("auto", env, **{**SMALL, "num_envs": None})


REPEATED = ["processes of stable-baselines3", "single", "single text", "text that restarts"]  # like others, or below


@diagonal("make", ENVS, rare=REPEATED)
def test_environments_of_ones_own_continue(make, tmp_path):
    agent = own(make())
    run(agent, 1)
    agent.save(tmp_path / "agent")
    wanted = run(agent, 1)
    again = Reinforce.load(tmp_path / "agent", env=make(), continue_env=True, device="cpu")
    assert run(again, 1) == wanted
    anew = Reinforce.load(tmp_path / "agent", env=make(), device="cpu")
    assert run(anew, 1) != wanted
    for each in (agent, again, anew):
        each.env.close()


def test_an_error_in_a_state_dict_is_not_hidden(monkeypatch):
    monkeypatch.delattr(Fading, "factor")
    with pytest.raises(AttributeError, match="factor"):
        env_state(Fading(Simulated()))


class Silent(SubprocVecEnv):
    """Keeps its environments to itself, and notes with what it is seeded."""

    def __init__(self):
        self.seeds = []
        super().__init__([pole()] * 2, "fork")

    def reset(self):
        self.seeds.append(self._seeds[0])
        return super().reset()

    def get_attr(self, attr_name, indices=None):
        if attr_name == "render_mode":
            return [None] * 2
        raise NotImplementedError


def text_slots():
    return gym.make_vec("TextGen-v0", num_envs=1, vectorization_mode="async", **ARITH)


@pytest.mark.parametrize(("make", "kept"), [(Silent, "nothing of"), slow(text_slots, "only the random generators of")])
def test_what_other_processes_hold_is_not_lost_silently(make, kept, tmp_path):
    """What is lost is named once; who does not say where it stands is seeded anew, with a seed of the checkpoint."""
    agent, seeds = own(make()), []
    run(agent, 1)
    with pytest.warns(UserWarning, match=f"{kept} .* can be kept"):
        agent.save(tmp_path / "agent")
    agent.env.close()
    agent.save(tmp_path / "agent")
    for _ in range(2 if make is Silent else 1):
        env = make()
        with pytest.warns(UserWarning, match=f"{kept} .* can be kept"):
            again = Reinforce.load(tmp_path / "agent", env=env, continue_env=True, device="cpu")
        if make is Silent:
            run(again, 2)
            seeds.append(env.seeds)
        env.close()
    assert make is not Silent or (seeds[0] == seeds[1] and seeds[0][0] not in (None, 5) and seeds[0][1] is None)


def test_slots_groups_and_a_seed_of_ones_own_start_anew(tmp_path):
    for kind in ("text", "control"):
        agent = made("reinforce", kind)
        run(agent, 1)
        agent.save(tmp_path / kind)
    one = Agent.load(tmp_path / "text", num_envs=1, group_size=1, device="cpu")
    assert one.num_envs == 1 and one.env.unwrapped.state_dict()["next_episode"] == 0
    run(one, 1)
    run(Agent.load(tmp_path / "control", num_envs=1, device="cpu"), 1)
    seeded = [
        run(Agent.load(tmp_path / "control", device="cpu", **seed), 1) for seed in ({"seed": 77}, {"seed": 77}, {})
    ]
    assert seeded[0] == seeded[1] != seeded[2]


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
