"""Gradients of real agents in the world of `agents.exact`, many rollouts at a time.

V tokens, T steps, S prefixes, C completions, R copies of the policy's table, N episodes. An episode of copy r moves the
logits of that copy only, so one backward pass over many rollouts, each with its own copy, gives the gradient of each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from agents import Agent, Policy, Rollout
from agents.exact import TablePolicy, World, WorldEnv


def make_agent(cls: type[Agent], world: World, logits: torch.Tensor, copies: int = 1, **settings: Any) -> Agent:
    """Return a real agent with a table of logits [S, V], for rollouts made by hand."""
    silent = torch.zeros(1, len(world.prefixes), world.tokens)
    return cls(TablePolicy(logits.repeat(copies, 1, 1)), WorldEnv(world, silent), device="cpu", **settings)


def scores(world: World, logits: torch.Tensor) -> torch.Tensor:
    """Return ∇ log π(y) of every completion [C, S·V] under a table of logits [S, V]."""
    return torch.autograd.functional.jacobian(world.log_probs, logits.double(), vectorize=True).flatten(1)


def episodes(
    policy: Policy, world: World, completions: torch.Tensor, rewards: torch.Tensor, prompts: torch.Tensor
) -> Rollout:
    """Return the rollout in which a policy sampled these completions, with the prompts as groups.

    Args:
        policy: which sampled them.
        world: whose completions they are.
        completions: their numbers [N].
        rewards: of the last token of each [N], or of all tokens [N, T].
        prompts: of each completion [N].
    """
    states, actions, mask = (part[completions] for part in world.paths)  # [N, T]
    if rewards.ndim == 1:
        rewards = rewards[:, None] * (torch.arange(mask.shape[1]) == mask.sum(1, keepdim=True) - 1)
    made = Rollout.of_demonstrations(prompts[:, None] * len(world.prefixes) + states, actions, mask)
    made = replace(made, rewards=rewards.double().where(mask, 0), groups=prompts)
    with torch.no_grad():
        return replace(made, log_probs=policy.evaluate(made)["log_probs"])
