"""Identities 2 and 7 on real language models: three tokens, at most three steps, two prompts, all groups enumerated."""

from dataclasses import replace

import gymnasium as gym
import pytest
import torch
from tabular import COMPLETIONS, LEVELS, MASK, C, P, multisets, relative_error
from tiny_models import tiny_policy

import rlenv  # noqa: F401
from agents import Reinforce, ReinforceBaseline, Rollout
from verifiers import FunctionVerifier

# tabular.py's tokens 0, 1 and 2 (the end) as this tokenizer's: <pad>, "a" and <eos>
TOKENS = torch.tensor([0, 2, 1])
ACTIONS = torch.tensor([[int(TOKENS[c[t]]) if t < len(c) else 0 for t in range(3)] for c in COMPLETIONS])  # [C, T]
KINDS = ["gpt2", "llama"]


def small_world(group_size):
    verifier = FunctionVerifier(lambda prompts, completions: [0.0] * len(prompts), alphabet="a")
    return gym.make_vec(
        "TextGen-v0", num_envs=4, verifier=verifier, problems=["a", "aaa"], test_fraction=0.0, max_prompt_tokens=3,
        max_new_tokens=3, group_size=group_size,
    )  # fmt: skip


def make(cls, kind, size, **kwargs):
    envs = small_world(size)
    policy = tiny_policy(kind, envs)
    return cls(policy, envs, episodes_per_update=2 * size, device="cpu", **kwargs)


def episodes(agent, prompts, completions, groups):
    """Return the episodes in which these completions [N] follow these prompts [N], of one and of three tokens."""
    envs = agent.env
    lengths = 1 + 2 * prompts
    tokens = torch.where(torch.arange(envs.task.max_length) < lengths[:, None], 2, 0)
    rollout = Rollout.of_demonstrations({"tokens": tokens, "length": lengths}, ACTIONS[completions], MASK[completions])
    last = MASK[completions].sum(1) - 1
    rewards = torch.zeros(len(prompts), 3, dtype=torch.float64)
    rewards[torch.arange(len(prompts)), last] = LEVELS[prompts, completions]
    with torch.no_grad():
        log_probs, _ = agent.policy.evaluate_actions(rollout)
    return replace(rollout, rewards=rewards, groups=groups, log_probs=log_probs)


def flat_gradient(policy):
    return torch.cat([parameter.grad.flatten() for parameter in policy.parameters()])


def true_gradient(agent):
    """Return the gradient of J = Σ_prompts 1/2 Σ_y π(y) R(y) by differentiating the sum itself."""
    prompts, completions = torch.arange(P).repeat_interleave(C), torch.arange(C).repeat(P)
    library = episodes(agent, prompts, completions, prompts)
    log_probs, _ = agent.policy.evaluate_actions(library)
    probability = log_probs.sum(1).exp()
    torch.testing.assert_close(probability.sum(), torch.tensor(2.0, dtype=torch.float64))
    agent.policy.zero_grad()
    ((probability * LEVELS.flatten()).sum() / P).backward()
    return flat_gradient(agent.policy)


def expected_gradient(agent, size):
    """Return the expected gradient of the agent's real loss over every group of `size` episodes of each prompt."""
    chosen, orders = zip(*multisets(size), strict=True)
    completions = torch.tensor(chosen).repeat(P, 1)  # [2M, K]
    prompts = torch.arange(P).repeat_interleave(len(chosen)).repeat_interleave(size)
    groups = torch.arange(len(completions)).repeat_interleave(size)
    rollout = episodes(agent, prompts, completions.flatten(), groups)
    sampled = rollout.log_probs.sum(1).reshape(-1, size).sum(1).exp() * torch.tensor(orders).repeat(P)
    share = len(rollout) / (P * size) * sampled.repeat_interleave(size)
    prepared = agent.prepare(rollout)
    agent.policy.zero_grad()
    agent.loss(replace(prepared, weights=prepared.weights * share[:, None]))[0].backward()
    return -flat_gradient(agent.policy)


LOSSES = [
    (Reinforce, 1, 1.0, {}),
    (ReinforceBaseline, 2, 1.0, {"baseline": "none"}),
    (ReinforceBaseline, 2, 1.0, {"baseline": "leave-one-out"}),
    (ReinforceBaseline, 2, 1.0, {"baseline": "leave-one-out", "returns": "episode"}),
    (ReinforceBaseline, 3, 1.0, {"baseline": "leave-one-out"}),
    (ReinforceBaseline, 2, 0.5, {"baseline": "group-mean"}),
    (ReinforceBaseline, 2, 1.0, {"baseline": "length-weighted"}),
    (ReinforceBaseline, 2, 1.0, {"baseline": "optimal-token"}),
]


@pytest.mark.parametrize(
    ("kind", "cls", "size", "scale", "kwargs"),
    [
        pytest.param(kind, *loss, marks=[] if (number + turn) % len(KINDS) == 0 else [pytest.mark.slow])
        for number, kind in enumerate(KINDS)
        for turn, loss in enumerate(LOSSES)
    ],
)
def test_the_expected_gradient_is_the_policy_gradient(kind, cls, size, scale, kwargs):
    agent = make(cls, kind, size, **kwargs)
    assert relative_error(expected_gradient(agent, size), scale * true_gradient(agent)) <= 1e-10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("baseline", ["leave-one-out", "group-mean", "optimal-token"])
def test_equal_rewards_in_a_group_give_exactly_no_gradient(kind, baseline):
    agent = make(ReinforceBaseline, kind, 2, baseline=baseline)
    completions = torch.tensor([0, 5, 3, 14])
    rollout = episodes(agent, torch.tensor([0, 0, 1, 1]), completions, torch.tensor([0, 0, 1, 1]))
    rewards = torch.zeros(4, 3, dtype=torch.float64)
    rewards[torch.arange(4), MASK[completions].sum(1) - 1] = torch.tensor([0.1, 0.1, 0.7, 0.7], dtype=torch.float64)
    agent.policy.zero_grad()
    agent.loss(agent.prepare(replace(rollout, rewards=rewards)))[0].backward()
    assert bool((flat_gradient(agent.policy) == 0).all())
