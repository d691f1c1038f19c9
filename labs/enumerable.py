"""Gradients of real agents in the world of `rlenv.agents.exact`, many rollouts at a time.

V tokens, T steps, S prefixes, C completions, R copies of the policy's table, N episodes. An episode of copy r moves the
logits of that copy only, so one backward pass over many rollouts, each with its own copy, gives the gradient of each.
"""

from __future__ import annotations

from typing import Any

import torch

from rlenv.agents import Agent
from rlenv.agents.exact import TablePolicy, World, WorldEnv


def make_agent(cls: type[Agent], world: World, logits: torch.Tensor, copies: int = 1, **settings: Any) -> Agent:
    """Return a real agent with a table of logits [S, V], for rollouts made by hand."""
    silent = torch.zeros(1, len(world.prefixes), world.tokens)
    return cls(TablePolicy(logits.repeat(copies, 1, 1)), WorldEnv(world, silent), device="cpu", **settings)


def scores(world: World, logits: torch.Tensor) -> torch.Tensor:
    """Return ∇ log π(y) of every completion [C, S·V] under a table of logits [S, V]."""
    return torch.autograd.functional.jacobian(world.log_probs, logits.double(), vectorize=True).flatten(1)
