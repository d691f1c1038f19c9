"""Seeds trained together: each one learns what it learns alone."""

from __future__ import annotations

import threading

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback

from agents import A2C, DAPO, PPO, RLOO, ControlPolicy, Reinforce, ReinforceBaseline
from agents.policies import Policy
from agents.policies.control.numpy_actor import NumpyActor
from agents.rollouts import seed_stack
from agents.rollouts.seed_stack import Stack
from agents.rollouts.tape import Tape


class StopAfter(BaseCallback):
    """Stops training before the rollout after so many updates."""

    def __init__(self, updates):
        super().__init__()
        self.updates = updates

    def _on_step(self):
        return self.model.num_updates < self.updates


SMALL = {"episodes_per_update": 4, "device": "cpu"}


def made(cls, env="CartPole-v1", seeds=3, **settings):
    return [cls("MlpPolicy", env, seed=7 * seed, **(SMALL | settings)) for seed in range(seeds)]


def trained(agent, episodes):
    """Train an agent; return its curve."""
    return [(agent.num_timesteps, figures) for _, figures in agent.updates(total_episodes=episodes)]


def together(agents, episodes):
    """Train agents in a stack, the first one longer than the others; return their curves."""
    loops = [lambda agent=agent, i=i: trained(agent, episodes[i]) for i, agent in enumerate(agents)]
    results = {}
    for i, result, error in Stack(loops).run():
        assert error is None
        results[i] = result
    return [results[i] for i in range(len(agents))]


@pytest.mark.parametrize(
    ("cls", "env", "settings"),
    [
        (Reinforce, "CartPole-v1", {}),
        (ReinforceBaseline, "CartPole-v1", {}),
        (A2C, "CartPole-v1", {}),
        (PPO, "CartPole-v1", {"num_epochs": 2, "num_minibatches": 2}),
        (RLOO, "CartPole-v1", {"ent_coef": 0.01, "kl_coef": 0.1}),
        pytest.param(DAPO, "CartPole-v1", {}, marks=pytest.mark.slow),
        (A2C, "Pendulum-v1", {"env_kwargs": {"max_episode_steps": 30}, "normalize_rewards": True}),
        pytest.param(
            *(ReinforceBaseline, "Acrobot-v1", {"env_kwargs": {"max_episode_steps": 40}, "baseline": "value"}),
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda case: getattr(case, "__name__", None),
)
def test_every_seed_learns_what_it_learns_alone(cls, env, settings) -> None:
    episodes = [12, 8]
    ours, alone = made(cls, env, 2, **settings), made(cls, env, 2, **settings)
    for i, curve in enumerate(together(ours, episodes)):
        wanted = trained(alone[i], episodes[i])
        assert [steps for steps, _ in curve] == [steps for steps, _ in wanted]
        for (_, figures), (_, theirs) in zip(curve, wanted, strict=True):
            assert figures == pytest.approx(theirs, rel=1e-5, abs=1e-6, nan_ok=True)
        for value, other in zip(ours[i].policy.parameters(), alone[i].policy.parameters(), strict=True):
            torch.testing.assert_close(value, other, rtol=1e-5, atol=1e-6)
        assert torch.equal(ours[i].generator.get_state(), alone[i].generator.get_state())
        assert ours[i].collector.state_dict() == alone[i].collector.state_dict()


def test_it_learns_the_same_to_1e_9_in_double_precision() -> None:
    curves, weights = [], []
    for train in (together, lambda agents, episodes: list(map(trained, agents, episodes))):
        agents = made(ReinforceBaseline, learning_rate=0.03)
        for agent in agents:
            net = agent.policy.net.double()
            agent.policy._logits = lambda obs, net=net: net.action_net(net.mlp_extractor.forward_actor(obs.double()))
        curves.append([figures for curve in train(agents, [12, 8, 8]) for _, figures in curve])
        weights.append([weight.detach() for agent in agents for weight in agent.policy.parameters()])
    for ours, alone in zip(*curves, strict=True):
        assert ours == pytest.approx(alone, rel=1e-9, abs=1e-9)
    for ours, alone in zip(*weights, strict=True):
        assert ours.dtype is torch.float64
        torch.testing.assert_close(ours, alone, rtol=1e-9, atol=1e-9)


def actors(policies, obs):
    """Return what acts for each policy, with noise of its own."""
    noise = [torch.Generator().manual_seed(i) for i in range(len(policies))]
    return [policy.make_actor(obs[i], policy.action_space, torch.device("cpu"), generator=noise[i])
            for i, policy in enumerate(policies)]  # fmt: skip


class Overflowing(gym.RewardWrapper):
    """Pays too much now and then."""

    def reset(self, **kwargs):
        seen = super().reset(**kwargs)
        self.paid = float("inf") if seen[0][0] > 0.02 else 1.0
        return seen

    def reward(self, reward):
        return self.paid


@pytest.fixture
def overflowing():
    gym.register("Overflowing-v0", lambda: Overflowing(gym.make("CartPole-v1")), disable_env_checker=True)
    yield "Overflowing-v0"
    del gym.registry["Overflowing-v0"]


def test_rewards_that_are_not_finite_are_left_out_as_they_are_alone(overflowing) -> None:
    ours, alone = (made(RLOO, overflowing, max_failed_share=0.9) for _ in range(2))
    for curve, agent, other in zip(together(ours, [12] * 3), ours, alone, strict=True):
        for (_, figures), (_, wanted) in zip(curve, trained(other, 12), strict=True):
            assert figures == pytest.approx(wanted, rel=1e-5, abs=1e-6, nan_ok=True)
        assert agent.collector.failure == other.collector.failure
    assert "error: the environment paid inf" in {agent.collector.failure for agent in ours}


@pytest.mark.parametrize("action", [spaces.Discrete(3), spaces.Box(-1, 1, (2,))], ids=["discrete", "continuous"])
def test_joined_networks_act_as_each_one_does(action) -> None:
    policies = []
    for seed in range(3):
        torch.manual_seed(seed)
        policies.append(ControlPolicy(spaces.Box(-1, 1, (5,)), action))
        policies[-1].net.double()
    obs = np.random.default_rng(0).normal(size=(3, 6, 5))
    single = actors(policies, obs)
    joined = NumpyActor.joined(single)
    with torch.no_grad():
        policies[1].net.action_net.weight.mul_(2)
    joined.take(1, single[1])
    _, actions, log_probs = joined.act(obs)
    for i, actor in enumerate(actors(policies, obs)):
        _, own, own_log_probs = actor.act(obs[i])
        np.testing.assert_allclose(actions[i], own, rtol=0, atol=1e-12)
        np.testing.assert_allclose(log_probs[i], own_log_probs, rtol=0, atol=1e-12)


def test_an_error_ends_its_own_loop_only() -> None:
    agents = made(Reinforce, seeds=3)

    def broken(*_):
        raise RuntimeError("this seed is broken")

    agents[1].update = broken
    ended = {i: error for i, _, error in Stack([lambda one=one: trained(one, 12) for one in agents]).run()}
    assert str(ended[1]) == "this seed is broken"
    assert ended[0] is None and ended[2] is None
    assert [agent.num_updates for agent in agents] == [3, 0, 3]


def test_closing_a_stack_ends_its_threads() -> None:
    before = set(threading.enumerate())
    agents = made(Reinforce, seeds=3)
    run = Stack([lambda i=i, one=one: trained(one, 8 if i == 0 else 10_000) for i, one in enumerate(agents)]).run()
    assert next(run)[0] == 0
    run.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
    assert set(threading.enumerate()) <= before
    assert seed_stack.current() is None


def test_a_callback_that_stops_a_run_stops_it_where_it_stops_alone() -> None:
    counts = []
    for vectorized in (True, False):
        agents = made(PPO, seeds=2, num_epochs=1)
        loops = [lambda one=one: one.learn(total_episodes=40, callback=StopAfter(2)) for one in agents]
        if vectorized:
            assert [error for _, _, error in Stack(loops).run()] == [None, None]
        else:
            [loop() for loop in loops]
        counts.append([(agent.num_timesteps, agent.num_updates) for agent in agents])
    assert counts[0] == counts[1]


def test_time_that_others_take_is_not_counted() -> None:
    agents = made(ReinforceBaseline, seeds=3)
    together(agents, [8] * 3)
    assert all(agent.evaluation_seconds > 0 for agent in agents)


@pytest.mark.parametrize(
    ("env", "settings", "said"),
    [
        (lambda: gym.make_vec("CartPole-v1", num_envs=4), {}, "given by their id"),
        (lambda: "CartPole-v1", {"num_envs": 2}, "num_envs is episodes_per_update, got 2 and 4"),
        (lambda: "CartPole-v1", {"policy_kwargs": {"act_in_numpy": False}}, "act in numpy"),
    ],
)
def test_what_cannot_be_vectorized_is_refused_in_one_line(env, settings, said) -> None:
    agent = Reinforce("MlpPolicy", env(), **(SMALL | settings))
    with pytest.raises(ValueError, match=said):
        seed_stack.check(agent.env, agent.policy, agent.episodes_per_update)


def test_a_policy_that_acts_otherwise_than_it_says_is_refused(monkeypatch) -> None:
    """Also under `python -O`."""
    assert Policy().acts_in_numpy is False
    agents = made(Reinforce, seeds=2)
    monkeypatch.setattr(ControlPolicy, "make_actor", Policy.make_actor)
    with pytest.raises(ValueError, match="acts_in_numpy of ControlPolicy is True, but its actor is a PolicyActor"):
        list(Stack([lambda one=one: trained(one, 8) for one in agents]).run())


def test_the_tape_keeps_what_is_still_read() -> None:
    tape, rng = Tape(), np.random.default_rng(0)
    steps = rng.normal(size=(300, 2, 3)).astype(np.float32)
    for t in range(300):
        tape.add([steps[t]], needed=max(0, t - 150))
    for first, number in ((150, 150), (200, 30), (260, 40)):
        read = tape.parts[0][tape.rows(first, number)]
        np.testing.assert_array_equal(read, steps[first : first + number])
    assert tape.length == 256
