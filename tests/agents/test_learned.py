"""What an algorithm learns beside the policy, which it leaves alone: modules that are saved and kept, and critics."""

import copy
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from diagonal import diagonal
from gymnasium.vector import VectorWrapper
from identity_checks import EXACT, assert_close, collect, gapped
from refused import refusal
from tiny_models import text_envs, tiny_model, tiny_policy
from torch import nn

from rlenv.agents import A2C, PPO, Reinforce
from rlenv.agents.exact import World
from rlenv.agents.gradient_check import check_gradient
from rlenv.agents.rollout import join
from rlenv.agents.training.extras import with_extras
from rlenv.agents.training.learned import train_too
from rlenv.agents.training.metrics import Reduce
from rlenv.agents.training.state import parts_of
from rlenv.agents.training.supervised import warm_start


class Predictor(Reinforce):
    """Predicts the return from the first observation."""

    own_optimizer: ClassVar[bool] = False

    def setup(self, env, group_size):
        self.head = nn.Linear(4, 1)
        self.offset = nn.Parameter(torch.zeros(()))
        if self.own_optimizer:
            self.adam = torch.optim.Adam([*self.head.parameters(), self.offset], lr=0.1)
            self.schedule = torch.optim.lr_scheduler.LambdaLR(self.adam, lambda step: 1 - 0.01 * step)

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
            self.schedule.step()
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
    by_name, from_folder = agent_of(cls), agent_of(cls)
    by_name.set_parameters(first.get_parameters())
    from_folder.set_parameters(tmp_path)
    assert all(map(torch.equal, heads(by_name) + heads(from_folder), 2 * heads(first)))
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
    scheduled = agent_of(OwnOptimizer)
    scheduled.set_env("CartPole-v1")
    assert scheduled.learn(total_episodes=4).adam.param_groups[0]["lr"] == pytest.approx(0.099)


def test_learned_weights_stay_when_another_environment_is_refused(monkeypatch):
    setup = Predictor.setup

    def refuse(agent, env, group_size):
        setup(agent, env, group_size)
        raise ValueError("not this one")

    agent = agent_of().learn(total_episodes=4)
    learned = heads(agent)
    monkeypatch.setattr(Predictor, "setup", refuse)
    refusal(lambda: agent.set_env("CartPole-v1"), "not this one")
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

    refusal(lambda: agent_of(InThePolicy), "head.weight of the policy would not be trained")
    policy = agent_of().policy
    name, frozen = next(iter(policy.named_parameters()))
    frozen.requires_grad_(False)
    agent = Reinforce(policy, "CartPole-v1", device="cpu")
    frozen.requires_grad_(True)
    refusal(lambda: agent.learn(1), f"{name} of the policy would not be trained")


def test_an_optimizer_of_ones_own_is_refused_in_several_processes(monkeypatch):
    agent = agent_of(OwnOptimizer)
    monkeypatch.setattr("rlenv.agents.training.learned.processes.size", lambda: 2)
    refusal(lambda: train_too(agent), "OwnOptimizer has another optimizer", "2 processes")


# The critics of a language model: what they train, start from and keep; tests/laws has their values.


def policy_with(critic, envs):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return tiny_policy("llama", envs, dtype="float64", critic=critic)


@pytest.mark.parametrize("critic", ["head", "separate"])
def test_the_policys_trunk_gets_no_gradient_from_the_critic(critic):
    envs = text_envs()
    policy = policy_with(critic, envs)
    policy.values(collect(policy, envs, 8)).sum().backward()
    parts = [name.split(".")[:2] for name, weight in policy.named_parameters() if weight.grad is not None]
    assert parts.count(["critic", "head"]) == 4 and {first for first, _ in parts} == {"critic"}
    assert (["critic", "trunk"] in parts) == (critic == "separate") != (policy.critic.trunk is None)


def test_a_separate_critic_starts_as_the_policys_trunk_also_after_a_warm_start():
    envs = text_envs()
    policy = policy_with("separate", envs)
    start = policy.model.base_model.norm.weight.clone()
    warm_start(policy, collect(policy, envs, 4), steps=1)
    assert not torch.equal(start, policy.model.base_model.norm.weight)
    for theirs, ours in zip(policy.critic.trunk.parameters(), policy.model.base_model.parameters(), strict=True):
        assert torch.equal(theirs, ours) and theirs is not ours


@pytest.mark.parametrize("first", ["with replies", "without"])
def test_rollouts_with_and_without_replies_are_joined(first):
    policy = tiny_policy("llama", text_envs(4))
    parts = [gapped(policy, 8), gapped(policy, 8, gaps=False, seed=1)]
    parts = parts if first == "with replies" else parts[::-1]
    joined = join(parts, obs_from_actions=True)
    expected = torch.cat([each.log_probs[each.mask] for each in parts])
    assert_close(policy.evaluate(joined)["log_probs"][joined.mask], expected, EXACT, "joined")
    assert join(parts[:1] * 2, True).positions is None or first == "with replies"
    assert torch.equal(policy.costs(joined), torch.cat([policy.costs(part) for part in parts]))


# Time limits: what the critic says of the state behind one, and what it is then fitted to.

GAMMA = 0.9


class CutOff(VectorWrapper):
    """Our text environment, were its budget a time limit and not the end of the answer."""

    def step(self, actions):
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        return obs, rewards, terminated & ~truncated, truncated, infos


@diagonal("cls, critic", [A2C, PPO], ["head", "separate"])
def test_final_values_of_text_are_the_critics_of_prompt_and_completion(cls, critic):
    envs = CutOff(text_envs(4))
    settings = {"policy_kwargs": {"dtype": "float64", "critic": critic}, "gamma": GAMMA}
    agent = cls(tiny_model("gpt2"), envs, episodes_per_update=12, device="cpu", **settings)
    rollout = collect(agent.policy, envs, 12)
    cut = rollout.truncated & ~rollout.terminated
    assert 0 < int(cut.sum()) < 12
    prepared = agent.prepare(rollout)
    one_more = torch.arange(rollout.mask.shape[1] + 1) <= rollout.lengths[:, None]
    longer = replace(rollout, actions=torch.nn.functional.pad(rollout.actions, (0, 1)), mask=one_more)
    wanted = agent.policy.values(longer).detach().gather(1, rollout.lengths[:, None])[:, 0]
    assert_close(prepared.extras["final_values"], wanted * cut, EXACT, "final values")
    assert (prepared.extras["final_values"][cut] != 0).all()
    agent.micro_batch_size = 1  # most parts then have no final observation at all
    row_by_row = agent.prepare(rollout)
    assert_close(row_by_row.extras["final_values"], prepared.extras["final_values"], EXACT, "final values, row by row")
    assert_close(row_by_row.values, prepared.values, EXACT, "values, row by row")


@pytest.mark.parametrize("rows", [None, 1])
def test_final_values_of_a_policy_with_a_memory_are_of_all_that_it_saw(rows):
    agent = A2C("MlpPolicy", "MountainCar-v0", episodes_per_update=3, micro_batch_size=rows, device="cpu")
    agent.policy.initial_state = lambda slots: torch.zeros(slots)
    agent.policy.values = lambda seen: seen.observations[..., 0].where(seen.mask, 0).cumsum(1)  # its sum so far
    rollout = agent.collector.collect(agent.policy, 3, agent.generator)
    assert rollout.truncated.all()
    rollout.terminated[1] = True
    places = rollout.observations[..., 0].where(rollout.mask, 0).sum(1) + rollout.final_observations[:, 0]
    found = with_extras(agent, rollout).extras["final_values"]
    assert_close(found, places * torch.tensor([1, 0, 1]), 1e-5, "final values")
