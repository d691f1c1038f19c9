"""A dialogue small enough to enumerate: one action, a reply that follows from it, one more action.

A token is one of V, prompts are P; the policy has a logit vector for each prefix of each prompt. C = V² dialogues.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from tabular import tiny_world
from torch import nn

from rlenv.agents import Agent, Policy, Rollout
from rlenv.agents.exact import gradient
from rlenv.agents.policies.choosing import evaluate_choices

P, V, K = 2, 3, 2
S = 1 + V + V * V  # nothing, the first action, and the reply after it
REPLY = torch.tensor([[1, 0, 2], [2, 2, 0]])  # to each first action [P, V]
PAID = torch.rand(P, V, V, generator=torch.Generator().manual_seed(3), dtype=torch.float64)  # for both actions


class Speaking(Policy):
    """Reads text, so that replies are tokens of it; its laws are a table."""

    obs_from_actions = is_categorical = True
    kind = "language-model"

    def __init__(self) -> None:
        super().__init__()
        drawn = torch.randn(P, S, V, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        self.logits = nn.Parameter(drawn)

    def evaluate(self, rollout: Rollout, want: Any = ("log_probs",), reference: Any = None) -> Any:
        assert isinstance(rollout.observations, dict)
        prompt, first, reply, _ = rollout.observations["tokens"].T
        states = torch.stack([0 * first, 1 + first, 1 + V + V * first + reply], 1)  # [N, 3]
        at = states.gather(1, (rollout.columns - 1).where(rollout.mask, 0))
        law = self.logits[prompt[:, None], at].log_softmax(-1)
        return evaluate_choices(law, rollout.actions, want, mask=rollout.mask)


def expected(policy: Speaking, table: torch.Tensor) -> torch.Tensor:
    """Return the expectation of a quantity [P, V, V] of both actions, a mean over prompts, differentiable."""
    log_pi = policy.logits.log_softmax(-1)
    first = torch.arange(V)
    second = torch.stack([log_pi[p, 1 + V + V * first + REPLY[p]] for p in range(P)])  # [P, V, V]
    return ((log_pi[:, 0, :, None] + second).exp() * table).sum((1, 2)).mean()


def true_gradient(policy: Speaking) -> torch.Tensor:
    """Return ∇ of the expected reward [P, S, V]."""
    return torch.autograd.grad(expected(policy, PAID), policy.logits)[0]


def reply_gradient(policy: Speaking) -> torch.Tensor:
    """Return E[∇ log π(reply)], the distribution of the actions held fixed [P, S, V]."""
    with torch.no_grad():
        chance = policy.logits[:, 0].softmax(-1)  # of the first action [P, V]
    said = policy.logits.log_softmax(-1)[:, 1 : 1 + V].gather(2, REPLY[..., None])[..., 0]  # [P, V]
    return torch.autograd.grad((chance * said).sum(1).mean(), policy.logits)[0]


def expected_gradient(cls: type[Agent], **settings: Any) -> tuple[Speaking, torch.Tensor]:
    """Return a policy, and the expectation of an agent's gradient over every rollout of a group of K per prompt."""
    policy = Speaking()
    agent = cls(policy, tiny_world(K), device="cpu", group_size=K, **settings)
    pairs = torch.cartesian_prod(*[torch.arange(V)] * 2 * K).view(-1, 2)  # of both episodes of each group [V⁴ K, 2]
    prompts = torch.arange(P).repeat_interleave(len(pairs))
    first, second = pairs.repeat(P, 1).T
    tokens = torch.stack([prompts, first, REPLY[prompts, first], second], 1)
    mask = torch.ones(len(tokens), 2, dtype=torch.bool)
    observations = {"tokens": tokens, "length": torch.ones(len(tokens), dtype=torch.int64)}
    rollout = Rollout.of_demonstrations(
        observations, tokens[:, [1, 3]], mask, torch.tensor([[1, 3]]).expand(len(tokens), 2)
    )
    paid = torch.stack([torch.zeros(len(tokens)), PAID[prompts, first, second]], 1)
    with torch.no_grad():
        log_probs = policy.evaluate(rollout)["log_probs"]
    rollout = replace(rollout, rewards=paid, log_probs=log_probs, groups=torch.arange(len(tokens)) // K)
    chance = log_probs.sum(1).view(-1, K).sum(1).exp().repeat_interleave(K)  # of its group, for each row
    prepared, share = agent.prepare(rollout), len(tokens) / (P * K) * chance
    replies = {name: prepared.extras[name] * share for name in ("reply_weights",) if name in prepared.extras}
    weighted = replace(prepared, weights=prepared.weights * share[:, None]).with_extras(**replies)
    return policy, gradient(agent, weighted)
