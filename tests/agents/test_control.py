"""Classic control: which spaces are taken, and that what the environment gets is what the log-probability is of."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from identity_checks import ROUNDING, assert_close, collect

from agents import Reinforce

IMAGE = spaces.Box(0.0, 1.0, (3,), np.float32)


class Listener(gym.Env):
    """Five steps long; it checks each action against its space and remembers it."""

    def __init__(self, action_space, observation_space=IMAGE):
        self.action_space, self.observation_space = action_space, observation_space
        self.heard, self.spec = [], None
        observation_space.seed(0)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        self.heard.append(np.array(action))
        return self.observation_space.sample(), 1.0, self.steps == 5, False, {}


def agent_in(env, policy="auto", **policy_kwargs):
    return Reinforce(policy, env, policy_kwargs=policy_kwargs, episodes_per_update=4, num_envs=1, device="cpu")


def heard_and_chosen(agent, env):
    """Return what the environment got and what the rollout says was chosen, in order [M, ...]."""
    env.heard.clear()
    rollout = collect(agent.policy, agent.env, 4)
    count = int(rollout.mask.sum())
    return torch.as_tensor(np.stack(env.heard[:count])), rollout.actions[rollout.mask], rollout


@pytest.mark.parametrize(
    "space",
    [spaces.Discrete(3, start=5), spaces.Discrete(3, start=-4), spaces.MultiDiscrete([2, 3], start=[7, -1])],
    ids=str,
)
def test_actions_begin_where_their_space_begins(space):
    env = Listener(space)
    agent = agent_in(env)
    heard, chosen, rollout = heard_and_chosen(agent, env)
    assert torch.equal(heard, chosen + torch.as_tensor(space.start))
    assert all(space.contains(action) for action in env.heard) and len(heard.unique(dim=0)) > 2
    action, _ = agent.predict(env.reset()[0], deterministic=True)
    assert space.contains(action)
    log_probs, _ = agent.policy.evaluate_actions(rollout)
    assert_close(log_probs, rollout.log_probs, ROUNDING, "acting and training")
    agent.learn(total_episodes=4)


def test_squashed_actions_fill_the_bounds_and_have_their_own_log_probability():
    space = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32))
    env = Listener(space)
    agent = agent_in(env, use_sde=True, squash_output=True, log_std_init=0.0)
    heard, chosen, rollout = heard_and_chosen(agent, env)
    low, high = torch.as_tensor(space.low), torch.as_tensor(space.high)
    assert (chosen.abs() < 1).all() and (chosen.abs() > 0.5).any()
    assert_close(heard, low + (chosen + 1) / 2 * (high - low), ROUNDING, "what the environment got")
    normal = agent.policy._distribution(rollout).distribution
    plain = normal.log_prob(torch.atanh(chosen)) - torch.log(1 - chosen**2 + 1e-6)  # a density of the squashed action
    assert_close(rollout.log_probs[rollout.mask], plain.sum(-1), 1e-3, "acting")
    log_probs, _ = agent.policy.evaluate_actions(rollout)
    assert_close(log_probs, rollout.log_probs, ROUNDING, "acting and training")
    for deterministic in (True, False):
        action, _ = agent.predict(env.reset()[0], deterministic=deterministic)
        assert space.contains(action)
    agent.learn(total_episodes=4)


def test_dict_observations_get_a_policy_that_reads_them():
    space = spaces.Dict({"near": IMAGE, "kind": spaces.Discrete(2)})
    agent = agent_in(Listener(spaces.Discrete(2), space)).learn(total_episodes=4)
    assert agent.policy.name == "MultiInputPolicy"


TWO = spaces.Discrete(2)
SQUASH = {"squash_output": True}
REFUSED = {  # observation space, action space, policy, its arguments, what is said
    "tuple": (spaces.Tuple([IMAGE, IMAGE]), TWO, "auto", {}, "observation space Tuple.*supported: Box"),
    "tuple of actions": (IMAGE, spaces.Tuple([spaces.Discrete(2)]), "auto", {}, "action space Tuple.*supported: Box"),
    "dict of dicts": (
        spaces.Dict({"a": spaces.Dict({"b": IMAGE})}), TWO, "auto", {}, "observation space Dict.*supported"
    ),
    "start of observations": (spaces.Discrete(3, start=1), TWO, "auto", {}, "start=1.*start=0"),
    "dict for an MLP": (spaces.Dict({"a": IMAGE}), TWO, "MlpPolicy", {}, "use MultiInputPolicy"),
    "array for parts": (IMAGE, TWO, "MultiInputPolicy", {}, "use MlpPolicy"),
    "squash alone": (IMAGE, spaces.Box(-1, 1, (1,)), "auto", SQUASH, "squash_output needs use_sde=True"),
    "squash without bounds": (
        IMAGE, spaces.Box(-np.inf, np.inf, (1,)), "auto", SQUASH | {"use_sde": True}, "squash_output.*bounds"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_spaces_that_no_policy_reads_are_refused_in_one_line(case):
    observation_space, action_space, policy, kwargs, said = REFUSED[case]
    with pytest.raises(ValueError, match=said) as refusal:
        agent_in(Listener(action_space, observation_space), policy, **kwargs)
    assert "\n" not in str(refusal.value)
