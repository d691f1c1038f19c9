"""GRPO in one file: its answers are the model's, its update is that of `rlenv.agents.GRPO`, and it learns."""

import copy
from dataclasses import replace

import pytest
import torch
from identity_checks import collect, contexts
from loaded import loaded
from tiny_models import text_envs, tiny_policy

from rlenv.agents import GRPO
from rlenv.agents.training.update import backward

example = loaded("examples/grpo.py")
N, K = 32, 4


def agent_and_rollout(**settings):
    """Return an agent of float64, and a rollout of an older policy, so that a part of the ratios is clipped."""
    envs = text_envs(8, group_size=K)
    policy = tiny_policy("llama", envs, temperature=0.8, layers=2)
    agent = GRPO(policy, envs, episodes_per_update=N, learning_rate=0.01, warmup_updates=0, device="cpu", **settings)
    rollout = collect(policy, envs, N)
    rollout = rollout.select(rollout.groups.argsort(stable=True))
    noise = torch.randn(rollout.mask.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    older = rollout.log_probs.double() + 0.3 * noise
    return agent, replace(rollout, log_probs=older.where(rollout.mask, 0), rewards=rollout.rewards.double())


def answers_of(rollout):
    """Return the example's form of a rollout."""
    prompts, answers = [], []
    for tokens, columns in contexts(rollout):
        prompts.append(tokens[: columns[0]])
        answers.append(tokens[columns[0] :])
    drawn = example.padded(prompts, answers, "cpu")
    return replace(drawn, log_probs=rollout.log_probs, advantages=example.advantages_of(rollout.rewards.sum(1), K))


@pytest.mark.parametrize("kl_coef", [0.0, 0.1])
def test_an_update_equals_that_of_the_agent(kl_coef):
    agent, rollout = agent_and_rollout(kl_coef=kl_coef, kl_estimator="k3", kl_in="loss", max_grad_norm=0.5)
    ours, theirs = agent.policy.model, copy.deepcopy(agent.policy.model)
    answers, settings = answers_of(rollout), example.Settings(kl_coef=kl_coef, temperature=0.8, max_grad_norm=0.5)
    if kl_coef:
        with torch.no_grad():
            agent.anchor.freeze_reference(agent.policy)
            for weight, other in zip(ours.parameters(), theirs.parameters(), strict=True):
                weight.mul_(1.01)  # else the KL has no gradient
                other.mul_(1.01)
            answers.ref_log_probs = example.log_probs_of(agent.anchor.reference.model, answers, 0.8)
    optimizer = torch.optim.Adam(theirs.parameters(), 0.01, betas=(0.9, 0.95), eps=1e-5)

    (batch,) = agent.batches(agent.prepare(rollout))
    metrics = backward(agent, batch)
    assert 0.1 < metrics["train/clip_fraction"] < 0.9
    gradient = torch.cat([weight.grad.flatten() for weight in ours.parameters()])
    agent.policy_optimizer.step(agent.rate, agent.max_grad_norm, betas=(0.9, 0.95), eps=1e-5)
    found = []
    theirs_step = optimizer.step
    optimizer.step = lambda: (found.append(torch.cat([w.grad.flatten() for w in theirs.parameters()])), theirs_step())
    example.update(theirs, optimizer, answers, settings)

    clipped = gradient * min(1.0, 0.5 / gradient.norm().item())
    assert gradient.norm() > 0.5 and (found[0] - clipped).norm() <= 1e-6 * clipped.norm()
    for weight, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(other, weight, rtol=0, atol=1e-6 * 0.01)


def test_parts_of_the_answers_add_up_to_one_step():
    agent, rollout = agent_and_rollout()
    answers, models = answers_of(rollout), []
    for micro_batch in (N, 5):
        models.append(copy.deepcopy(agent.policy.model))
        optimizer = torch.optim.SGD(models[-1].parameters(), 0.01)
        example.update(models[-1], optimizer, answers, example.Settings(micro_batch=micro_batch, temperature=0.8))
    for weight, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(other, weight, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("temperature", [0.7, 0])
def test_answers_have_the_log_probabilities_of_one_pass(temperature):
    model = tiny_policy("llama", text_envs(4)).model
    prompts, generator = [[1], [2, 3, 4], [5, 6]], torch.Generator().manual_seed(0)
    answers = example.sample(model, prompts, 3, 9, [7, 9], temperature, generator)
    with torch.no_grad():
        torch.testing.assert_close(
            example.log_probs_of(model, answers, temperature or 1), answers.log_probs, rtol=0, atol=1e-12
        )
    for row, written in enumerate(answers.written()):
        assert answers.tokens[row][answers.read[row]].tolist() == prompts[row // 3] + written
        assert all(token not in (7, 9) for token in written[:-1]) and (written[-1] in (7, 9) or len(written) == 9)
    greedy = [answers.written()[row] for row in range(0, 9, 3)]
    assert temperature or greedy * 3 == [answers.written()[row] for copy in range(3) for row in range(copy, 9, 3)]


def test_adapters_begin_as_the_model_and_alone_are_trained():
    model = tiny_policy("llama", text_envs(4)).model
    answers = example.padded([[1, 2], [3]], [[4, 5], [6]], "cpu")
    before = example.log_probs_of(model, answers).detach()
    example.add_adapters(model, 2)
    torch.testing.assert_close(example.log_probs_of(model, answers), before, rtol=0, atol=1e-12)
    trained = {name.split(".")[-1] for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == {"A", "B"}


@pytest.mark.parametrize("updates", [1, pytest.param(25, marks=pytest.mark.slow)])
def test_a_new_model_learns_sums(updates, capsys):
    torch.manual_seed(2)
    model, sums = example.tiny(), example.Sums(most=6, seed=2)
    example.imitate(model, sums, steps=updates + 5, examples=12)
    settings = example.Settings(episodes=64, learning_rate=5e-4, kl_coef=0.01, num_minibatches=4)
    rewards = example.train(model, sums, settings, updates, 3, seed=2)
    assert updates == 1 or sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.05
    assert 0 <= example.evaluate(model, sums, 3, count=8) <= 1
    assert "success" in capsys.readouterr().out
