"""The loop: bad hyper-parameters say what is allowed, bad gradients are skipped, every action space trains."""

import contextlib
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from diagonal import diagonal
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from identity_checks import collect
from tiny_models import text_envs, tiny_policy

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import GRPO, PPO, RLOO, DivergedError, Reinforce, ReinforceBaseline, VerifierError
from agents.rollout import ERROR
from agents.training.metrics import rollout_metrics
from agents.training.optimizer import MAX_SKIPPED

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("slots", [1, 3])
def test_groups_that_do_not_span_slots_are_refused_with_what_to_use_instead(slots, mode):
    make = lambda: gym.make("TextGen-v0", verifier="arith", group_size=4)  # noqa: E731
    envs = gym.vector.SyncVectorEnv([make] * slots, autoreset_mode=mode)
    with pytest.raises(ValueError, match=r"group_size=4 .*gym\.make_vec\('TextGen-v0', num_envs=\.\.\.") as error:
        RLOO("tiny", envs, device="cpu")
    assert "\n" not in str(error.value)


def test_the_smallest_group_is_logged():
    agent = RLOO(tiny_policy("gpt2", envs := text_envs(4, group_size=4)), envs, episodes_per_update=8, device="cpu")
    assert agent.learn(1).last_metrics["rollout/group_size_min"] == 4
    rollout = collect(agent.policy, envs, 8)
    rollout.status[:3] = ERROR
    assert rollout_metrics(rollout)["rollout/group_size_min"] == 1


def test_an_environment_without_groups_is_one_group():
    advantages = []
    for baseline in ("group-mean", "batch-mean"):
        agent = ReinforceBaseline("MlpPolicy", "CartPole-v1", baseline=baseline, episodes_per_update=4, device="cpu")
        advantages.append(agent.prepare(collect(agent.policy, agent.env, 4)).advantages)
    assert torch.equal(*advantages)


# Gradients.


def spoil_gradients(agent, how_often):
    """Let the next losses give NaN gradients."""
    loss, left = agent.loss, [how_often]

    def spoiled(batch):
        value, figures = loss(batch)
        left[0] -= 1
        return (value * NAN if left[0] >= 0 else value), figures

    agent.loss = spoiled


def test_an_update_of_many_bad_steps_counts_once():
    agent = PPO("MlpPolicy", "CartPole-v1", episodes_per_update=8, device="cpu")
    steps = agent.num_epochs * agent.num_minibatches
    assert steps > MAX_SKIPPED
    spoil_gradients(agent, (MAX_SKIPPED - 1) * steps)
    agent.learn(total_episodes=8 * (MAX_SKIPPED - 1))
    assert agent.policy_optimizer.skipped == MAX_SKIPPED - 1
    spoil_gradients(agent, steps)
    with pytest.raises(RuntimeError, match=f"{MAX_SKIPPED} updates in a row had non-finite gradients"):
        agent.learn(1)


@pytest.mark.parametrize("kind", ["control", "text"])
def test_weights_that_are_not_finite_are_named(kind):
    agent = small_agent(kind)
    with torch.no_grad():
        next(iter(agent.policy.parameters())).view(-1)[:3] = torch.tensor([NAN, INF, NAN])
    with pytest.raises(RuntimeError, match=r"^the policy has 3 weights that are NaN or infinite"):
        agent.learn(1)


def test_log_probabilities_that_are_not_finite_are_skipped_counted_and_named():
    agent = small_agent("text")
    act, before = agent.policy.act, [p.clone() for p in agent.policy.parameters()]
    agent.policy.act = lambda *args, **kwargs: (lambda a, p, s: (a, p * NAN, s))(*act(*args, **kwargs))
    agent.learn(1)
    assert agent.last_metrics["train/skipped_updates"] == 1
    with pytest.raises(DivergedError, match=f"^{MAX_SKIPPED} updates in a row had non-finite log-probabilities"):
        agent.learn(10**6)
    assert all(torch.equal(p, q) for p, q in zip(agent.policy.parameters(), before, strict=True))


def test_a_loss_that_is_not_finite_is_skipped_counted_and_forgotten():
    agent = small_agent("control")
    loss, bad = agent.loss, [True]

    def spoiled(batch):
        value, figures = loss(batch)
        return value, figures | ({"train/loss": NAN} if bad else {})

    agent.loss = spoiled
    agent.learn(1)
    assert agent.policy_optimizer.skipped == 1 and agent.last_metrics["train/skipped_updates"] == 1
    assert agent.trained_timesteps == 0 < agent.num_timesteps
    bad.clear()
    agent.learn(1)
    assert agent.trained_timesteps > 0
    assert agent.policy_optimizer.skipped == 0 and agent.last_metrics["train/skipped_updates"] == 1


# Rewards that are no numbers.


class ThreeSteps(gym.Env):
    """Pays for actions near a target; the second step of some episodes pays something that is no finite number."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, action_space, reward=None, every=1):
        self.action_space, self.reward, self.every, self.episode = action_space, reward, every, -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.episode = 0, self.episode + 1
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.t += 1
        bad = self.reward is not None and self.t == 2 and self.episode % self.every == 0
        obs = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        near = -float(np.abs(np.asarray(action, dtype=float) - 0.4).sum())
        return obs, self.reward if bad else near, self.t == 3, False, {}


LEARNERS = {
    "running mean": lambda env: ReinforceBaseline("MlpPolicy", env, baseline="running-mean", episodes_per_update=20),
    "batch mean": lambda env: ReinforceBaseline("MlpPolicy", env, baseline="batch-mean", episodes_per_update=20),
    "critic": lambda env: PPO("MlpPolicy", env, episodes_per_update=20),
    "standardized": lambda env: GRPO("MlpPolicy", env, episodes_per_update=20),
}


@diagonal("name, reward", list(LEARNERS), [NAN, INF, -INF, 1e39])
def test_an_episode_whose_reward_is_no_number_is_left_out_and_counted(name, reward):
    agent = LEARNERS[name](ThreeSteps(spaces.Discrete(2), reward, every=20))
    for _ in range(3):
        before = [p.clone() for p in agent.policy.parameters()]
        agent.learn(1)
        assert agent.last_metrics["rollout/error_frac"] == agent.last_metrics["rollout/failed_frac"] == 1 / 20
        assert agent.policy_optimizer.skipped == 0
        assert any(not torch.equal(p, q) for p, q in zip(agent.policy.parameters(), before, strict=True))
    figures = [figure for key, figure in agent.last_metrics.items()]
    assert np.isfinite(figures).all()


def test_rewards_that_are_often_no_numbers_end_the_training_and_are_named():
    agent = LEARNERS["batch mean"](ThreeSteps(spaces.Discrete(2), NAN, every=2))
    with pytest.raises(VerifierError, match=r"10% \(max_failed_share\).*the environment paid nan"):
        agent.learn(100_000)


# Updates that go too far.


FAR = {
    "one step": lambda **settings: Reinforce("MlpPolicy", "CartPole-v1", episodes_per_update=4, **settings),
    "many steps": lambda **settings: PPO("MlpPolicy", "CartPole-v1", episodes_per_update=4, **settings),
    "text": lambda **settings: RLOO(
        "tiny", "TextGen-v0", env_kwargs={"verifier": "arith", "verifier_kwargs": {"digits": 1}}, **settings
    ),
}


@diagonal("name, rate", list(FAR), [10.0, 1000.0])
def test_a_learning_rate_that_destroys_the_policy_is_warned_of_once(name, rate):
    agent = FAR[name](learning_rate=rate, lr_schedule="constant", warmup_updates=0, device="cpu")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with contextlib.suppress(RuntimeError):  # some of them end with gradients that are not finite
            agent.learn(total_episodes=4 * agent.episodes_per_update)
    (warning,) = [str(entry.message) for entry in caught]
    assert f"lower learning_rate={rate:g}" in warning and "\n" not in warning


def small_agent(kind):
    settings = {"lr_schedule": "constant", "device": "cpu"}
    if kind == "control":
        return Reinforce("MlpPolicy", "CartPole-v1", episodes_per_update=2, **settings)
    return Reinforce("tiny", text_envs(4), episodes_per_update=4, **settings)


# Spaces.


ACTIONS = {
    "box": spaces.Box(-0.5, 1, (2,), np.float32),
    "scalar box": spaces.Box(-1, 1, (1,), np.float32),
    "multi-discrete": spaces.MultiDiscrete([3, 2, 4]),
    "multi-binary": spaces.MultiBinary(3),
    "discrete": spaces.Discrete(4),
}


@diagonal("baseline, space", ["batch-mean", "value"], list(ACTIONS))
def test_every_action_space_trains(space, baseline):
    envs = gym.vector.SyncVectorEnv([lambda: ThreeSteps(ACTIONS[space])] * 4)
    agent = ReinforceBaseline(
        "MlpPolicy", envs, baseline=baseline, episodes_per_update=12, ent_coef=0.01, kl_coef=0.01, device="cpu"
    )
    before = [p.clone() for p in agent.policy.parameters()]
    agent.learn(100)
    assert agent.num_updates == 3 and agent.last_metrics["train/logp_gap_max"] < 1e-5
    assert any(not torch.equal(p, q) for p, q in zip(agent.policy.parameters(), before, strict=True))
    assert all(torch.isfinite(p).all() for p in agent.policy.parameters())


# Counting.


@pytest.mark.parametrize("schedule", ["linear", "constant"])
def test_training_for_less_than_a_rollout_still_trains(schedule):
    agent = Reinforce("MlpPolicy", "CartPole-v1", episodes_per_update=2, lr_schedule=schedule, device="cpu")
    before = [p.clone() for p in agent.policy.parameters()]
    agent.learn(1)
    assert any(not torch.equal(p, q) for p, q in zip(agent.policy.parameters(), before, strict=True))


# Until when.


@pytest.mark.parametrize(("episodes", "updates"), [(1, 1), (4, 1), (5, 2), (12, 3)])
def test_learning_for_a_number_of_episodes_stops_after_the_rollout_that_reaches_it(episodes, updates):
    agent = Reinforce("MlpPolicy", "CartPole-v1", episodes_per_update=4, device="cpu")
    agent.learn(total_episodes=episodes)
    assert (agent.num_updates, agent.num_episodes) == (updates, 4 * updates)


def test_episodes_are_counted_on_or_anew():
    agent = Reinforce("MlpPolicy", "CartPole-v1", episodes_per_update=4, device="cpu")
    agent.learn(total_episodes=8).learn(total_episodes=8, reset_num_timesteps=False)
    assert (agent.num_updates, agent.num_episodes) == (4, 16)
    agent.learn(total_episodes=8)
    assert (agent.num_updates, agent.num_episodes) == (2, 8)
