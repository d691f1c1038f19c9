"""The optimizer step: what changes nothing, how fast it goes, and decay."""

import copy

import pytest
import torch
from tabular import TabularPolicy
from tiny_models import text_envs, tiny_policy

from rlenv.agents import ReinforceBaseline
from rlenv.agents.errors import DivergedError
from rlenv.agents.training.optimizer import PolicyOptimizer, rate_at


def optimizer_of(policy=None):
    return PolicyOptimizer(policy or TabularPolicy())


def set_gradients(optimizer, actor, critic):
    policy = optimizer.policy
    policy.logits.grad, policy.table.grad = torch.full_like(policy.logits, actor), torch.full_like(policy.table, critic)


def snapshot(optimizer):
    return copy.deepcopy((optimizer.policy.state_dict(), optimizer.adam.state_dict()["state"]))


def assert_unchanged(optimizer, before):
    torch.testing.assert_close(snapshot(optimizer), before, rtol=0, atol=0)


# Steps that change nothing.


@pytest.mark.parametrize(("none", "decay"), [(True, 0.0), (False, 0.0), (False, 0.5)])
def test_a_gradient_of_zero_changes_nothing_whatever_adam_remembers(none, decay):
    optimizer = optimizer_of()
    for _ in range(3):
        set_gradients(optimizer, 0.2, -0.1)
        optimizer.step(0.1, 1.0, weight_decay=decay)
    before = snapshot(optimizer)
    assert any(state["exp_avg"].any() for state in before[1].values()), "Adam has momentum"
    for _ in range(3):
        optimizer.adam.zero_grad(set_to_none=True)
        if not none:
            set_gradients(optimizer, 0.0, 0.0)
        assert optimizer.step(0.1, 1.0, weight_decay=decay) == 0.0
        assert_unchanged(optimizer, before)
    set_gradients(optimizer, 1e-12, 0.0)
    optimizer.step(0.1, 1.0, weight_decay=decay)
    assert not torch.equal(optimizer.policy.logits, before[0]["logits"]), "the smallest gradient does"


def test_a_learning_rate_beyond_the_weights_precision_is_named():
    optimizer = optimizer_of(TabularPolicy().to(torch.float32))
    set_gradients(optimizer, 0.2, -0.1)
    with pytest.raises(DivergedError, match=r"learning_rate=1e\+39 makes weights that are not finite"):
        optimizer.step(1e39, 1.0)


# Clipping.


def test_actor_and_critic_are_clipped_each_by_itself():
    optimizer = optimizer_of()
    set_gradients(optimizer, 3.0, 1e-3)
    norm = float(optimizer.policy.logits.grad.norm())
    critic = optimizer.policy.table.grad.clone()
    assert optimizer.step(0.1, 0.5) == pytest.approx(norm), "what is returned is the actor's norm before clipping"
    assert float(optimizer.policy.logits.grad.norm()) == pytest.approx(0.5, rel=1e-4)
    torch.testing.assert_close(optimizer.policy.table.grad, critic)
    set_gradients(optimizer, 1e-3, 1e9)
    actor = optimizer.policy.logits.grad.clone()
    optimizer.step(0.1, 0.5)
    torch.testing.assert_close(optimizer.policy.logits.grad, actor)
    assert float(optimizer.policy.table.grad.norm()) == pytest.approx(0.5, rel=1e-4)


# The learning rate.


@pytest.mark.parametrize(
    ("learning_rate", "schedule", "rates"),
    [
        (0.2, "linear", [0.2, 0.1, 0.05, 0.0]),
        (0.2, "cosine", [0.2, 0.1, 0.1 * (1 - 0.5**0.5), 0.0]),
        (0.2, "constant", [0.2, 0.2, 0.2, 0.2]),
        (lambda remaining: 0.3 * remaining**2, "linear", [0.3, 0.075, 0.01875, 0.0]),
        (lambda remaining: 0.3 * remaining**2, "constant", [0.3, 0.075, 0.01875, 0.0]),
    ],
)
def test_the_rate_follows_its_schedule(learning_rate, schedule, rates):
    found = [rate_at(learning_rate, schedule, 0, remaining, updates=7) for remaining in (1.0, 0.5, 0.25, 0.0)]
    assert found == pytest.approx(rates)


def test_an_agent_warms_up_over_its_first_updates_to_its_schedule():
    settings = {"learning_rate": 0.01, "lr_schedule": "linear", "warmup_updates": 3}
    agent = ReinforceBaseline("MlpPolicy", "CartPole-v1", episodes_per_update=4, device="cpu", **settings)
    rates = [metrics["train/learning_rate"] for _, metrics in agent.updates(total_episodes=20)]
    assert rates == pytest.approx([0.01 / 3, 0.8 * 0.02 / 3, 0.006, 0.004, 0.002])


# Weight decay, and Adam's own settings.


def test_decay_is_that_of_adamw_and_spares_norms_and_biases():
    envs = text_envs(2)
    policy = tiny_policy("gpt2", envs)
    theirs = copy.deepcopy(policy)
    plain = [p for p in theirs.parameters() if p.ndim < 2]
    groups = [{"params": [p for p in theirs.parameters() if p.ndim >= 2]}, {"params": plain, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=0.01, betas=(0.8, 0.9), eps=1e-7, weight_decay=0.3)
    ours = PolicyOptimizer(policy)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        for p, q in zip(policy.parameters(), theirs.parameters(), strict=True):
            p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)
            q.grad = p.grad.clone()
        ours.step(0.01, 1e9, weight_decay=0.3, betas=(0.8, 0.9), eps=1e-7)
        adamw.step()
    assert len(plain) > 5
    for p, q in zip(policy.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-14)
