"""What an algorithm learns beside the policy: modules that are trained, saved and kept, and leave the policy alone."""

import copy
from typing import ClassVar

import pytest
import torch
from torch import nn

from rlenv.agents import Reinforce
from rlenv.agents.exact import World
from rlenv.agents.gradient_check import check_gradient
from rlenv.agents.training.learned import train_too
from rlenv.agents.training.metrics import Reduce
from rlenv.agents.training.state import parts_of


class Predictor(Reinforce):
    """Predicts the return from the first observation."""

    own_optimizer: ClassVar[bool] = False

    def setup(self, env, group_size):
        self.head = nn.Linear(4, 1)
        self.offset = nn.Parameter(torch.zeros(()))
        if self.own_optimizer:
            self.adam = torch.optim.Adam([*self.head.parameters(), self.offset], lr=0.1)

    def loss(self, batch):
        loss, figures = super().loss(batch)
        predicted = self.head(batch.observations[:, 0])[:, 0] + self.offset
        wrong = (predicted - batch.returns).square().sum()
        return loss + wrong, figures | {"train/wrong": wrong.detach()}

    def update(self, rollout):
        figures = super().update(rollout)
        if self.own_optimizer:
            self.adam.step()
            self.adam.zero_grad()
        return figures


class OwnOptimizer(Predictor):
    """Trains its modules itself."""

    own_optimizer = True


class MadeByConstructor(Predictor):
    """Makes its modules after the policy."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            super().setup(self.env, self.group_size)

    def setup(self, env, group_size):
        pass


def agent_of(cls=Predictor, **settings):
    usual = {"episodes_per_update": 4, "num_envs": 4, "learning_rate": 0.1, "lr_schedule": "constant", "device": "cpu"}
    return cls("MlpPolicy", "CartPole-v1", **usual | settings)


def heads(agent):
    return [p.detach().clone() for p in (*agent.head.parameters(), agent.offset)]


kinds = pytest.mark.parametrize("cls", [Predictor, OwnOptimizer, MadeByConstructor])


@kinds
def test_modules_learn_and_the_policy_learns_as_without_them(cls):
    agent, plain = agent_of(cls), agent_of(Reinforce)
    before = heads(agent)
    agent.learn(total_episodes=12)
    plain.learn(total_episodes=12)
    moved = [(new - old).abs().max() for new, old in zip(heads(agent), before, strict=True)]
    assert 0.2 < min(moved) <= max(moved) < 0.4, "Adam moves a weight by about the learning rate per step, three times"
    assert all(map(torch.equal, agent.policy.parameters(), plain.policy.parameters()))
    assert agent.last_metrics["train/loss"] == pytest.approx(
        agent.last_metrics["train/policy_loss"] + agent.last_metrics["train/wrong"]
    )


@kinds
def test_modules_go_on_as_without_a_break(cls, tmp_path):
    whole, first = agent_of(cls), agent_of(cls)
    whole.learn(total_episodes=16)
    first.learn(total_episodes=8).save(tmp_path)
    for again in (cls.load(tmp_path, device="cpu"), copy.deepcopy(first)):
        assert all(map(torch.equal, heads(again), heads(first)))
        again.learn(total_episodes=8, reset_num_timesteps=False)
        assert all(map(torch.equal, heads(again), heads(whole)))


def test_a_part_of_the_policy_is_saved_with_it_and_a_frozen_module_stays_where_it_is():
    class Keeping(Reinforce):
        def setup(self, env, group_size):
            self.actor = torch.nn.Sequential(*self.policy.children())
            self.compiled = torch.nn.ModuleList([self.policy])
            self.judge = nn.Linear(4, 1, device="meta").requires_grad_(False)
            self.target = nn.Linear(4, 1).requires_grad_(False)

    agent = agent_of(Keeping)
    assert agent.judge.weight.device.type == "meta"
    assert {"learned/judge", "learned/target"} == {name for name in parts_of(agent) if name.startswith("learned/")}
    before = agent.target.weight.clone()
    agent.learn(total_episodes=4)
    assert torch.equal(agent.target.weight, before)


def test_first_weights_come_from_the_seed_and_learned_ones_stay_in_another_environment():
    torch.manual_seed(1)
    one = agent_of(seed=3)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    other = agent_of(seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, heads(one), heads(other)))
    learned = heads(one.learn(total_episodes=4))
    one.set_env("CartPole-v1")
    assert all(map(torch.equal, heads(one), learned))
    one.learn(total_episodes=4, reset_num_timesteps=False)
    assert not any(map(torch.equal, heads(one), learned))


def test_learned_weights_stay_when_another_environment_is_refused():
    class Choosy(Predictor):
        refuses = False

        def setup(self, env, group_size):
            super().setup(env, group_size)
            if self.refuses:
                raise ValueError("not this one")

    agent = agent_of(Choosy).learn(total_episodes=4)
    learned, Choosy.refuses = heads(agent), True
    with pytest.raises(ValueError, match="not this one"):
        agent.set_env("CartPole-v1")
    assert all(map(torch.equal, heads(agent), learned))


def test_the_gradient_check_takes_modules_of_the_usual_precision():
    class Noted(Reinforce):
        reductions = {"train/out": Reduce.MEAN}

        def setup(self, env, group_size):
            self.head = nn.Linear(1, 1)

        def surrogate(self, log_probs, batch):
            batch.note("train/out", self.head(batch.returns[:, None]).expand_as(log_probs).detach())
            return super().surrogate(log_probs, batch)

    found = check_gradient(Noted, episodes=2, world=World(2, 2, end=0), updates=False)
    assert found.error < 1e-9


def test_weights_of_the_policy_that_no_optimizer_has_are_refused():
    class InThePolicy(Reinforce):
        def setup(self, env, group_size):
            self.policy.head = nn.Linear(4, 1)

    with pytest.raises(ValueError, match=r"head\.weight of the policy would not be trained"):
        agent_of(InThePolicy)
    policy = agent_of().policy
    name, frozen = next(iter(policy.named_parameters()))
    frozen.requires_grad_(False)
    agent = Reinforce(policy, "CartPole-v1", device="cpu")
    frozen.requires_grad_(True)
    with pytest.raises(ValueError, match=rf"{name} of the policy would not be trained"):
        agent.learn(1)


def test_an_optimizer_of_ones_own_is_refused_in_several_processes(monkeypatch):
    agent = agent_of(OwnOptimizer)
    monkeypatch.setattr("rlenv.agents.training.learned.processes.size", lambda: 2)
    with pytest.raises(ValueError, match=r"OwnOptimizer has another optimizer.* 2 processes"):
        train_too(agent)
