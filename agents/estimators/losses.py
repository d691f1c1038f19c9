"""Objectives without a ratio of policies, for the actor and for the critic: one value per step [N, T]."""

from __future__ import annotations

import torch


def policy_gradient(log_probs: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    """Return A_t log π(a_t | s_t), whose gradient is the policy gradient (Williams 1992).

    Args:
        log_probs: differentiable [N, T].
        advantages: constants [N, T].
    """
    return advantages.detach() * log_probs


def squared_error(values: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the critic's squared error [N, T]."""
    return (values - targets.detach()).square()
