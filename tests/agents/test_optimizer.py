"""The optimizer step: what changes nothing, its rate, decay, float32 copies of bfloat16 weights; the warm start."""

import copy

import pytest
import torch
from identity_checks import collect
from refused import refusal
from tabular import TabularPolicy
from tiny_models import hash_reward, text_envs, tiny_policy

from rlenv.agents import ReinforceBaseline
from rlenv.agents.errors import DivergedError
from rlenv.agents.training.optimizer import MasterWeights, PolicyOptimizer, rate_at
from rlenv.agents.training.supervised import WarmStart, warm_start


def set_gradients(optimizer, actor, critic):
    policy = optimizer.policy
    policy.logits.grad, policy.table.grad = torch.full_like(policy.logits, actor), torch.full_like(policy.table, critic)


def snapshot(optimizer):
    return copy.deepcopy((optimizer.policy.state_dict(), optimizer.adam.state_dict()["state"]))


# Steps that change nothing.


@pytest.mark.parametrize(("none", "decay"), [(True, 0.0), (False, 0.0), (False, 0.5)])
def test_a_gradient_of_zero_changes_nothing_whatever_adam_remembers(none, decay):
    optimizer = PolicyOptimizer(TabularPolicy())
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
        torch.testing.assert_close(snapshot(optimizer), before, rtol=0, atol=0)
    set_gradients(optimizer, 1e-12, 0.0)
    optimizer.step(0.1, 1.0, weight_decay=decay)
    assert not torch.equal(optimizer.policy.logits, before[0]["logits"]), "the smallest gradient does"


def test_a_learning_rate_beyond_the_weights_precision_is_named():
    optimizer = PolicyOptimizer(TabularPolicy().to(torch.float32))
    set_gradients(optimizer, 0.2, -0.1)
    with pytest.raises(DivergedError, match=r"learning_rate=1e\+39 makes weights that are not finite"):
        optimizer.step(1e39, 1.0)


def test_actor_and_critic_are_clipped_each_by_itself():
    optimizer = PolicyOptimizer(TabularPolicy())
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


@pytest.mark.parametrize("returned", [-1e-3, float("nan"), None])
def test_a_function_that_returns_no_rate_is_refused_before_weights_change(returned):
    agent = ReinforceBaseline("MlpPolicy", "CartPole-v1", learning_rate=lambda _: returned, device="cpu")
    before = copy.deepcopy(agent.policy.state_dict())
    refusal(lambda: agent.learn(total_episodes=4), "learning_rate(1) must be a finite number of at least 0, got")
    assert all(map(torch.equal, before.values(), agent.policy.state_dict().values()))


def test_an_agent_warms_up_over_its_first_updates_to_its_schedule():
    settings = {"learning_rate": 0.01, "lr_schedule": "linear", "warmup_updates": 3}
    agent = ReinforceBaseline("MlpPolicy", "CartPole-v1", episodes_per_update=4, device="cpu", **settings)
    rates = [metrics["train/learning_rate"] for _, metrics in agent.updates(total_episodes=20)]
    assert rates == pytest.approx([0.01 / 3, 0.8 * 0.02 / 3, 0.006, 0.004, 0.002])


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


# bfloat16 weights that act and train, with float32 copies in the optimizer.


STEPS = 40


def half_policy(envs=None, **kwargs):
    return tiny_policy("llama", envs or text_envs(2), dtype="bfloat16", **kwargs)


def in_single(policy):
    """Return the same policy with float32 weights."""
    twin = copy.deepcopy(policy)
    twin.model.float()
    return twin


def random_gradients(policies, generator):
    for together in zip(*(policy.parameters() for policy in policies), strict=True):
        noise = torch.rand(together[0].shape, generator=generator).div(100).bfloat16()
        for parameter in together:
            parameter.grad = noise.to(parameter.dtype)


def test_steps_that_round_to_nothing_add_up():
    half = half_policy()
    single, start = in_single(half), [p.detach().clone() for p in half.parameters()]
    ours, theirs = (PolicyOptimizer(policy) for policy in (half, single))
    generator = torch.Generator().manual_seed(0)
    for step in range(STEPS):
        random_gradients((half, single), generator)
        first, second = (each.step(2e-5, 1.0, weight_decay=0.1) for each in (ours, theirs))
        assert first == second, "norms are of float32 gradients"
        same = [torch.equal(p, q.bfloat16()) for p, q in zip(half.parameters(), single.parameters(), strict=True)]
        assert all(same), "the weights are the float32 ones, rounded"
        moved = torch.cat([(p != q).flatten() for p, q in zip(half.parameters(), start, strict=True)]).float().mean()
        assert step > 0 or moved < 0.05, "one step is hardly seen"
    assert moved > 0.5, "many are"


def test_gradients_of_micro_batches_are_added_up_in_single_precision():
    weight = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    weights = MasterWeights([weight])
    for gradient in (1.0, 2**-9, 2**-9):  # in bfloat16, 1 + 2**-9 is 1
        weight.grad = torch.full_like(weight, gradient)
        weights.add_gradients()
        assert weight.grad is None
    assert weights.masters[0].grad.item() == 1 + 2**-8


def test_weights_that_something_else_changed_are_taken_over():
    policy = half_policy()
    optimizer = PolicyOptimizer(policy)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        random_gradients((policy,), generator)
        optimizer.step(1e-4, 1.0)
    weight, master = next(iter(zip(policy.parameters(), optimizer.weights.masters, strict=True)))
    kept = master[1].clone()
    assert not torch.equal(kept, weight[1].float()), "the copy knows more than the weight"
    with torch.no_grad():
        weight[0] = 5.0
    optimizer.weights.follow()
    assert torch.equal(master[0], torch.full_like(master[0], 5.0)) and torch.equal(master[1], kept)


def shown(policy, envs):
    """Return a function of demonstrations, which are the same for the same call."""
    episodes = collect(policy, envs, 12)
    generator = torch.Generator().manual_seed(1)
    return lambda size: episodes.select(torch.randint(len(episodes), (size,), generator=generator))


@pytest.mark.parametrize("split", [{"micro_batch_size": 3}, {"micro_batch_tokens": 40}])
def test_micro_batches_do_not_change_the_warm_start(split):
    envs = text_envs(4, reward=hash_reward)
    whole = tiny_policy("gpt2", envs)
    parts = copy.deepcopy(whole)
    passes, evaluate = [], parts.evaluate
    parts.evaluate = lambda rows: passes.append(len(rows)) or evaluate(rows)
    demonstrations = [shown(whole, envs) for _ in range(2)]
    wanted = warm_start(whole, demonstrations[0], 1, batch_size=8)
    assert warm_start(parts, demonstrations[1], 1, batch_size=8, **split) == pytest.approx(wanted, rel=1e-12)
    assert len(passes) > 2 and sum(passes) == 8
    for p, q in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-10, atol=1e-14)


def test_a_warm_start_in_bfloat16_follows_that_in_float32_and_continues():
    envs = text_envs(4)
    half = half_policy(envs, layers=2)
    single, again = in_single(half), copy.deepcopy(half)
    demonstrations = [shown(half, envs) for _ in range(3)]
    wanted = warm_start(single, demonstrations[0], 8, batch_size=8, learning_rate=1e-3)
    made = warm_start(half, demonstrations[1], 8, batch_size=8, learning_rate=1e-3)
    assert wanted[-1] < wanted[0] - 0.1
    assert made == pytest.approx(wanted, abs=0.03)
    loop = WarmStart(again, demonstrations[2], 8, 8, 1e-3)
    loop.run(lambda step, loss: step < 4)
    rest = WarmStart(again, demonstrations[2], 8, 8, 1e-3)
    rest.load_state_dict(loop.state_dict())
    assert rest.run() == made
    assert all(torch.equal(p, q) for p, q in zip(again.parameters(), half.parameters(), strict=True))
