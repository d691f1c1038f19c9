"""Surrogates: what is differentiated, one value per step [N, T]."""

from __future__ import annotations

import torch


def policy_gradient(log_probs: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    """Return A_t log π(a_t | s_t), whose gradient is the policy gradient (Williams 1992).

    Args:
        log_probs: differentiable [N, T].
        advantages: constants [N, T].
    """
    return advantages.detach() * log_probs
