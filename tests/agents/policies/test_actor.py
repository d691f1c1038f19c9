"""What acts during a rollout: given observations as the environment gives them, with actions as it takes them."""

import numpy as np
import pytest
import torch
from counting_env import CountingPolicy, counting_envs
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from agents import Collector
from agents.policies.actor import Actor

CPU = torch.device("cpu")
SLOTS = np.ones(2, dtype=bool)


class Remembers(CountingPolicy):
    """Counts its steps in its state, and says what it was given."""

    def initial_state(self, num_envs):
        return torch.zeros(num_envs)

    def act(self, obs, state, episode_start, *how, playing):
        self.given = (obs, episode_start, *how, playing)
        return torch.tensor([[-3.0], [0.5]]), state, state + 1


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
def test_a_policy_with_act_alone_answers_in_kind(tensors, keyed):
    policy, generator = Remembers(), torch.Generator()
    values = torch.ones(2, 3, dtype=torch.float64) if tensors else np.ones((2, 3))
    obs = {"seen": values} if keyed else values
    actor = policy.make_actor(obs, spaces.Box(-1, 1, (1,)), CPU, True, generator)
    for step in range(2):
        taken, actions, log_probs = actor.act(obs, SLOTS, ~SLOTS)
        assert log_probs.tolist() == [step, step]
        assert actions.tolist() == [[-3.0], [0.5]], "a rollout keeps them as they were chosen"
        assert type(taken) is type(values)
        assert taken.tolist() == [[-1.0], [0.5]], "inside the bounds"
    seen, starts, deterministic, source, playing = policy.given
    assert (seen["seen"] if keyed else seen).dtype is torch.float32
    assert starts.all() and not playing.any() and deterministic and source is generator


class InNumpy(Actor):
    """Does on arrays what `CountingPolicy` does on tensors."""

    def act(self, obs, starts, playing):
        actions = obs.sum(1).astype(np.int64) % 3
        return actions, actions, -obs[:, 1]


class ActsInNumpy(CountingPolicy):
    def make_actor(self, *args, **kwargs):
        return InNumpy()


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_an_actor_of_its_own_makes_the_rollout_that_act_makes(mode):
    lengths = [3, 1, 4, 2, 5, 2, 6, 5, 3, 5, 8, 9, 7]
    policies = (ActsInNumpy(), CountingPolicy())
    ours, theirs = (Collector(counting_envs(2, mode, lengths), CPU).collect(policy, 7) for policy in policies)
    assert ours is not None and theirs is not None
    for name in ("observations", "actions", "log_probs", "rewards", "mask", "terminated", "truncated"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
