"""bfloat16 weights that act and train, with float32 copies in the optimizer; micro-batches of the warm start."""

import copy

import pytest
import torch
from identity_checks import collect
from tiny_models import hash_reward, text_envs, tiny_policy

from rlenv.agents.training.optimizer import MasterWeights, PolicyOptimizer
from rlenv.agents.training.supervised import WarmStart, warm_start

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


# The warm start.


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
