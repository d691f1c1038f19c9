"""The loop: what is no finite number is skipped and counted, settings may change, budgets of steps are kept."""

import copy
import inspect
import pickle
from dataclasses import replace
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from diagonal import diagonal
from gymnasium.envs.classic_control import PendulumEnv
from refused import refusal
from stable_baselines3.common.env_util import make_vec_env
from tiny_models import text_envs

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv._settings import setting
from rlenv.agents import GRPO, PKPO, PPO, RLOO, DivergedError, Reinforce, ReinforceBaseline
from rlenv.agents.policies.base import weights_digest
from rlenv.agents.training.optimizer import MAX_SKIPPED

NAN, INF = float("nan"), float("inf")
CPU = {"device": "cpu"}
ARITH = {"verifier": "arith"}


def pole(cls=Reinforce, env="CartPole-v1", **settings):
    return cls("MlpPolicy", env, **CPU, **settings)


# What is no finite number.


def spoil(agent, what, updates):
    """Let something be NaN in the next updates."""
    update, loss, left = agent.update, agent.loss, [updates]

    def spoiled_update(rollout):
        left[0] -= 1
        bad = left[0] >= 0 and what == "log-probabilities"
        return update(replace(rollout, log_probs=rollout.log_probs * NAN) if bad else rollout)

    def spoiled_loss(batch):
        value, figures = loss(batch)
        bad = what if left[0] >= 0 else None
        if bad == "gradients":  # of the root at 0
            value = value + (value - value.detach()).sqrt()
        return value * (NAN if bad == "loss" else 1), figures

    agent.update, agent.loss = spoiled_update, spoiled_loss


@pytest.mark.parametrize("what", ["log-probabilities", "loss", "gradients"])
def test_an_update_that_is_not_finite_is_skipped_counted_and_forgotten(what):
    agent = pole(episodes_per_update=2, lr_schedule="constant")
    before = weights_digest(agent.policy)
    spoil(agent, what, 1)
    with pytest.warns(match=f"^nothing was learned in the last update, with non-finite {what}:"):
        agent.learn(1)
    assert agent.policy_optimizer.skipped == 1 and agent.last_metrics["train/skipped_updates"] == 1
    assert agent.trained_timesteps == 0 < agent.num_timesteps and weights_digest(agent.policy) == before
    agent.learn(1)
    assert agent.trained_timesteps > 0
    assert agent.policy_optimizer.skipped == 0 and agent.last_metrics["train/skipped_updates"] == 1
    spoil(agent, what, INF)
    refusal(lambda: agent.learn(10**6), f"{MAX_SKIPPED} updates in a row had non-finite {what}", kind=DivergedError)


def test_an_anchor_without_an_expected_gradient_is_a_warning_unless_its_ratio_is_differentiated():
    agent = pole(kl_coef=0.1, kl_in="loss")
    with pytest.warns(match="kl_estimator='k1' in the loss has no expected gradient.*'k2'"):
        agent.learn(1)
    agent.kl_ratio = "differentiated"
    agent.learn(1)


def test_an_update_of_many_bad_steps_counts_once():
    agent = pole(PPO, episodes_per_update=8)
    steps = agent.num_epochs * agent.num_minibatches
    assert steps > MAX_SKIPPED
    spoil(agent, "gradients", INF)
    with pytest.warns(match=f"nothing was learned in the last {MAX_SKIPPED - 1} updates, with non-finite gradients:"):
        agent.learn(total_episodes=8 * (MAX_SKIPPED - 1))
    assert agent.policy_optimizer.skipped == MAX_SKIPPED - 1


class ThreeSteps(gym.Wrapper):
    """Three steps of a pole, each of which pays its action; the second one of every twentieth episode pays another."""

    def __init__(self, reward):
        super().__init__(gym.make("CartPole-v1", max_episode_steps=3))
        self.reward, self.steps = reward, 0

    def step(self, action):
        obs, _, *rest = self.env.step(action)
        self.steps += 1
        return obs, self.reward if self.steps % 60 == 2 else float(action), *rest


LEARNERS = {
    "running mean": (ReinforceBaseline, {"baseline": "running-mean"}),
    "batch mean": (ReinforceBaseline, {"baseline": "batch-mean"}),
    "critic": (PPO, {}),
    "standardized": (GRPO, {}),
}


@diagonal("name, reward", list(LEARNERS), [NAN, INF, -INF, 1e39])
def test_an_episode_whose_reward_is_no_number_is_left_out_and_counted(name, reward):
    cls, settings = LEARNERS[name]
    agent = pole(cls, ThreeSteps(reward), episodes_per_update=20, **settings)
    for _ in range(2):
        before = weights_digest(agent.policy)
        agent.learn(1)
        assert agent.last_metrics["rollout/error_frac"] == agent.last_metrics["rollout/failed_frac"] == 1 / 20
        assert agent.policy_optimizer.skipped == 0 and weights_digest(agent.policy) != before
    assert np.isfinite(list(agent.last_metrics.values())).all()


# A setting that is set between two updates.

LATER = {  # each has an effect beside the others
    "rate": {"learning_rate": 1e-4, "lr_schedule": "cosine", "warmup_updates": 9, "adam_beta1": 0.1},
    "step": {"max_grad_norm": 1e-3, "weight_decay": 5.0, "adam_eps": 1.0, "gamma": 0.5},
    "loss": {"kl_coef": 3.0, "kl_in": "loss", "kl_estimator": "k2", "ent_coef": 0.7, "episodes_per_update": 4},
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return the folder of a saved agent."""
    folder = tmp_path_factory.mktemp("saved")
    begun = {"kl_coef": 0.5, "normalize_rewards": True, "episodes_per_update": 2, "num_envs": 2}
    pole(**begun, policy_kwargs={"net_arch": [4]}).learn(total_episodes=4).save(folder)
    return folder


def gone_on(folder, changed, **settings):
    """Return a digest of a saved agent's weights after more updates, with settings given to `load` or set after it."""
    agent = Reinforce.load(folder, device="cpu", continue_env=True, **settings)
    for name, value in changed.items():
        setattr(agent, name, value)
    return weights_digest(agent.learn(total_episodes=8, reset_num_timesteps=False).policy)


@pytest.mark.parametrize("settings", LATER.values(), ids=LATER)
def test_a_setting_that_is_set_between_updates_counts_as_one_of_a_loaded_agent(settings, saved):
    found = gone_on(saved, settings)
    assert found == gone_on(saved, {}, **settings) != gone_on(saved, {})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("learning_rate", -1.0, "learning_rate"),
        ("ent_coef", "x", "ent_coef"),
        ("kl_coef", 0.1, "kl_coef=0.1 needs"),
        ("baseline", "batch-mean", "baseline='batch-mean' .* 'none'"),
        ("num_envs", 3, "num_envs=3"),
        ("seed", 3, "seed=3 .* 0"),
        ("env_kwargs", {"gravity": 1.0}, "env_kwargs={'gravity': 1.0} .* None"),
        ("kl_ratio", "constant", "kl_ratio='constant' needs kl_in='loss'"),
        ("mismatch_min", 0.5, "mismatch_min=0.5 has no effect without mismatch"),
    ],
)
def test_a_setting_that_cannot_be_set_during_training_is_named(name, value, said):
    agent = pole(ReinforceBaseline, episodes_per_update=2, baseline="none")
    before = getattr(agent, name)
    with pytest.raises(ValueError, match=f"^{said}"):
        for _ in agent.updates(total_episodes=6):
            setattr(agent, name, value)
    later = ("kl_coef", "kl_ratio", "mismatch_min")  # which depend on others, and are checked by the next update
    assert getattr(agent, name) == before or name in later
    agent.learning_rate = None
    assert agent.learning_rate == pole(ReinforceBaseline).learning_rate, "None is the default"


class Slotted(PPO):
    """Takes as many slots as the environment has."""

    slots: int | None = setting(default=None, help="Of the environment.", fixed=True)

    def setup(self, env, group_size):
        super().setup(env, group_size)
        self.slots = self.slots or env.num_envs


def test_setup_may_set_a_fixed_setting_each_time():
    agent = pole(Slotted, num_envs=4)
    agent.set_env("CartPole-v1")
    assert agent.slots == 4


# Until when: rollouts are whole, so small budgets of steps get small rollouts.


@pytest.mark.parametrize("schedule", ["linear", "constant"])
def test_training_for_less_than_a_rollout_still_trains(schedule):
    agent = pole(episodes_per_update=2, lr_schedule=schedule)
    before = weights_digest(agent.policy)
    agent.learn(1)
    assert weights_digest(agent.policy) != before


STEPS = (1, 3_000, 15_999)
BUDGETS = [  # how an agent is made, the budget; episodes per update, slots
    *((pole, {"total_timesteps": n}, (size, 16)) for n, size in zip(STEPS, (2, 3, 15), strict=True)),
    *((partial(pole, PPO), {"total_timesteps": n}, (size, 16)) for n, size in ((1_999, 1), (2_000, 2))),
    (partial(pole, env="MountainCar-v0", num_envs=4), {"total_timesteps": 1_000}, (2, 4)),
    (partial(pole, env="MountainCar-v0"), {"total_episodes": 16}, (16, 16)),
    (lambda: pole(env=make_vec_env("CartPole-v1", n_envs=4)), {"total_timesteps": 1_000}, (4, 4)),  # slots cannot wait
    (lambda: pole(env=PendulumEnv()), {"total_timesteps": 100}, (16, 1)),  # it does not say how long an episode is
    (lambda: GRPO("tiny", text_envs(4, group_size=4), **CPU), {"total_timesteps": 250}, (8, 4)),
]


@pytest.mark.parametrize(("make", "budget", "sizes"), BUDGETS)
def test_a_rollout_takes_half_of_the_budget_at_most_or_the_smallest_that_can_be_compared(make, budget, sizes):
    """What was given stays, and groups stay whole. Fewer episodes than slots that cannot wait would waste theirs."""
    agent = make()
    agent.updates(**budget)
    assert (agent.episodes_per_update, agent.num_envs) == sizes


def test_the_size_is_fixed_by_the_first_training_and_saved(tmp_path):
    agent = pole(env="MountainCar-v0").learn(1_000)
    agent.learn(100_000, callback=lambda *_: False)
    assert agent.episodes_per_update == 2
    agent.save(tmp_path / "agent")
    loaded = Reinforce.load(tmp_path / "agent")
    loaded.updates(100_000)
    assert (loaded.episodes_per_update, loaded.num_envs) == (2, 16)


def test_a_budget_that_leaves_too_few_episodes_is_refused_and_changes_nothing():
    agent = pole(PKPO, k=8)
    refusal(lambda: agent.learn(2000), "k=8 is more than the 2 episodes")
    assert (agent.episodes_per_update, agent.own_episodes, agent.best_of) == (16, 16, 8)
    agent.learn(total_episodes=16)
    assert agent.num_episodes == 16


# What reward functions learn about the training, through reset alone.


PROBLEMS = [{"prompt": f"{n}+{n}=", "answer": str(2 * n), "split": "test" if n == 4 else "train"} for n in range(5)]


def by_step(trainer_state, completions):
    return [float(trainer_state.global_step)] * len(completions)


@pytest.mark.parametrize("late", [{}, {"verifier_workers": 1, "verifier_timeout": 60.0}], ids=["here", "workers"])
def test_the_number_reaches_verdicts_in_any_process(late, tmp_path):
    (tmp_path / "stepped.py").write_text(inspect.getsource(by_step))  # this module takes a worker seconds to import
    env = {"verifier": f"{tmp_path}/stepped.py:by_step", "problems": PROBLEMS, "max_new_tokens": 3, **late}
    agent = RLOO("tiny", "TextGen-v0", env_kwargs=env, episodes_per_update=8, group_size=4, **CPU)
    rewards = [float(rollout.returns.mean()) for rollout, _ in agent.updates(total_episodes=24)]
    agent.env.close()
    assert rewards == [0.0, 1.0, 2.0]
    single = gym.make("TextGen-v0", verifier=by_step, problems=PROBLEMS, max_new_tokens=1)
    single.reset(seed=0, options={"progress": {"num_updates": 7, "max_updates": None}})
    assert single.step(np.int64(3))[1] == 7.0


def test_an_evaluation_may_have_longer_contexts_than_the_training():
    agent, longer = (
        RLOO("tiny", "TextGen-v0", env_kwargs={"verifier": "arith", "max_new_tokens": room}, seed=0, device="cpu")
        for room in (2, 6)
    )
    played = [each.evaluate("TextGen-v0", 4, seed=0, env_kwargs={"max_new_tokens": 6})[1] for each in (agent, longer)]
    assert torch.equal(played[0].actions, played[1].actions)
    assert max(played[0].lengths) > 2
    with pytest.raises(ValueError, match="2007 tokens long, but the model's context ends at 1024"):
        agent.evaluate("TextGen-v0", 4, env_kwargs={"max_new_tokens": 2000})


@pytest.mark.parametrize(
    "make",
    [
        lambda: RLOO("tiny", "TextGen-v0", env_kwargs=ARITH, episodes_per_update=8, kl_coef=0.1, **CPU).learn(1),
        lambda: pole(PPO, "Acrobot-v1", episodes_per_update=1, env_kwargs={"max_episode_steps": 9}).learn(1),
        lambda: pole(episodes_per_update=2, tensorboard_log="log").learn(1),
        lambda: pole(env=gym.make("CartPole-v1"), episodes_per_update=2),
    ],
    ids=["text", "control", "events", "new, an environment"],
)
def test_a_pickled_agent_goes_on_as_the_one_it_is_a_copy_of(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = make()
    before = weights_digest(agent.policy)
    agents = pickle.loads(pickle.dumps(agent)), copy.deepcopy(agent), agent
    ways = [weights_digest(each.learn(1, reset_num_timesteps=False).policy) for each in agents]
    for each in agents:
        each.logger.close()
    assert ways == ways[:1] * 3 and before not in ways
