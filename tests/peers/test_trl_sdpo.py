"""SDPO's loss is TRL's on the same logits, but for the mean: ours sums over an episode, TRL divides by its length."""

from dataclasses import replace

import pytest
import torch
from identity_checks import collect, contexts
from tiny_models import text_envs, tiny_policy

from rlenv.agents import SDPO

theirs = pytest.importorskip("trl.experimental.sdpo.loss_utils", reason="the extra 'peers' is not installed")
ALPHAS = {"kl": 1.0, "forward-kl": 0.0, "jensen-shannon": 0.5}


def logits_of(policy, rollout):
    """Return the logits at each step of each episode, a row per step, from plain forward passes [M, V]."""
    made = []
    for tokens, columns in contexts(rollout):
        made.append(policy.model(torch.tensor([tokens])).logits[0, torch.tensor(columns) - 1, : policy.vocab_size])
    return torch.cat(made)


def gradients(loss, policy):
    return torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, list(policy.parameters()))])


@pytest.mark.parametrize(("divergence", "estimator"), [*((name, "exact") for name in ALPHAS), ("kl", "sampled")])
def test_the_gradient_is_that_of_trls_loss(divergence, estimator):
    envs = text_envs(8, group_size=4)
    settings = {"episodes_per_update": 8, "device": "cpu", "teacher_weights": "live", "estimator": estimator}
    agent = SDPO(tiny_policy("llama", envs), envs, divergence=divergence, **settings)
    rollout = collect(agent.policy, envs, 8)
    rollout = replace(rollout, success=torch.tensor([0.0, 1.0, 0, 1, 0, 0, 0, 0]), log_probs=rollout.log_probs.double())
    prepared = agent.prepare(rollout)
    student, teacher = logits_of(agent.policy, prepared), logits_of(agent.policy, prepared.as_taught).detach()
    if estimator == "exact":
        loss = theirs.compute_full_logit_self_distillation_loss(student, teacher, distillation_alpha=ALPHAS[divergence])
    else:
        chosen = prepared.actions[prepared.mask]
        loss = theirs.compute_sampled_token_self_distillation_loss(student, teacher, chosen, distillation_alpha=1.0)
    mask = prepared.extras["taught"].repeat_interleave(
        prepared.lengths
    )  # TRL's mask of episodes that have a teacher's prompt
    wanted = gradients((loss * mask).sum() / len(prepared), agent.policy)
    found = gradients(agent.loss(prepared)[0], agent.policy)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    assert wanted.abs().max() > 1e-3
