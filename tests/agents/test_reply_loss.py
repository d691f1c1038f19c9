"""`reply_coef`: the cross-entropy of the environment's tokens, which are never actions, and nothing else."""

from dataclasses import replace

import pytest
import torch
from diagonal import slow
from dialogues import calling, talking
from identity_checks import collect, contexts
from tiny_models import text_envs, tiny_policy

from rlenv._status import ERROR
from rlenv.agents import GRPO, RLOO, SDPO

DOUBLE = {"rtol": 0, "atol": 1e-10}
COEF = 0.3
TERMS = {"ent_coef": 0.1, "kl_coef": 0.2, "kl_estimator": "exact", "kl_in": "loss"}


def made(cls, envs, **settings):
    settings = {"episodes_per_update": 8, "device": "cpu", "seed": 3, "learning_rate": 0.01, **settings}
    agent = cls(tiny_policy("llama", envs), envs, **settings)
    agent.anchor.freeze_reference(tiny_policy("llama", envs, seed=1))
    return agent


def played(agent, episodes=8):
    rollout = collect(agent.policy, agent.env, episodes)
    rewards = torch.zeros_like(rollout.rewards, dtype=torch.float64)
    rewards[:, 0] = (torch.arange(episodes) % 3 == 0).to(rewards)
    rollout.status[5] = ERROR
    return replace(rollout, rewards=rewards, success=rewards[:, 0], log_probs=rollout.log_probs.double())


def gradients(loss, policy):
    weights = [weight for weight in policy.parameters() if weight.requires_grad]
    return torch.cat([each.flatten() for each in torch.autograd.grad(loss, weights)])


def by_hand(policy, rollout):
    """Return the mean of -log π over the tokens of replies, from plain forward passes over each episode."""
    surprise = []
    for row, (tokens, columns) in enumerate(contexts(rollout)):
        law = policy.model(torch.tensor([tokens])).logits[0, :, : policy.vocab_size].log_softmax(-1)
        replies = sorted({*range(columns[0], len(tokens))} - {*columns})
        surprise += [-law[column - 1, tokens[column]] for column in replies if rollout.ok[row]]
    return torch.stack(surprise).mean()


@pytest.mark.parametrize(
    ("cls", "env", "settings"),
    [(RLOO, talking, {}), slow(GRPO, calling, TERMS), slow(SDPO, talking, {"teacher_weights": "start"})],
)
def test_the_gradient_is_the_agents_own_and_that_of_the_mean_over_reply_tokens(cls, env, settings):
    plain, more = (made(cls, env(8, group_size=4), reply_coef=coef, **settings) for coef in (0.0, COEF))
    rollout = played(plain)
    own = gradients(plain.loss(plain.prepare(rollout))[0], plain.policy)
    said = by_hand(more.policy, rollout)
    prepared = more.prepare(rollout)
    parts = [more.loss(part) for part in prepared.split(3)]
    found = gradients(sum(loss for loss, _ in parts), more.policy)
    torch.testing.assert_close(found, own + COEF * gradients(said, more.policy), **DOUBLE)
    assert sum(float(figures["train/reply_loss"]) for _, figures in parts) == pytest.approx(float(said.detach()))
    assert own.abs().max() > 1e-3 < COEF * gradients(by_hand(more.policy, rollout), more.policy).abs().max()


def test_the_parts_of_a_pass_average_to_the_whole():
    agent = made(GRPO, talking(8, group_size=4), reply_coef=COEF, num_epochs=1, num_minibatches=3)
    prepared = agent.prepare(played(agent))
    whole = gradients(agent.loss(prepared)[0], agent.policy)
    parts = [gradients(agent.loss(batch)[0], agent.policy) for batch in agent.batches(prepared)]
    torch.testing.assert_close(sum(parts) / 3, whole, **DOUBLE)


def test_without_replies_the_update_is_the_same():
    plain, more = (made(RLOO, text_envs(8, group_size=4), reply_coef=coef) for coef in (0.0, COEF))
    rollout = played(plain)
    plain.update(rollout), more.update(rollout)
    for one, other in zip(plain.policy.parameters(), more.policy.parameters(), strict=True):
        torch.testing.assert_close(one, other, **DOUBLE)
