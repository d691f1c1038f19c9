"""Advantages from the values of a critic."""

from __future__ import annotations

import torch

from ..devices import widest
from .returns import discounted


def generalized_advantage(
    rewards: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    gamma: float = 1.0,
    gae_lambda: float | torch.Tensor = 1.0,
    final_values: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the generalized advantage estimate of each step.

        δ_t = r_t + γ V(s_{t+1}) - V(s_t)        A_t = δ_t + γλ A_{t+1}                (Schulman et al. 2016, eq. 16)

    λ = 1 is the return-to-go less V(s_t), λ = 0 the one-step error.

    Args:
        rewards: [N, T]; masked cells are ignored.
        values: V(s_t), without gradient [N, T]; masked cells are ignored.
        mask: which steps exist, bool [N, T].
        gamma: γ, 0 to 1.
        gae_lambda: λ, 0 to 1; of all episodes, or of each [N] or [N, 1].
        final_values: V of what follows an episode's last step [N]: 0 where it terminated, the critic's value where it
            was only cut off; None for 0 everywhere.

    Returns:
        A [N, T], 0 in masked cells.
    """
    rewards, values = rewards.where(mask, 0), values.where(mask, 0)
    after = torch.zeros_like(values[:, 0]) if final_values is None else final_values.to(values)
    following = torch.cat([values.where(mask, after[:, None])[:, 1:], after[:, None]], 1)  # V(s_{t+1})
    deltas = (rewards + gamma * following - values).where(mask, 0)
    factor = gamma * gae_lambda
    if isinstance(factor, torch.Tensor):
        factor = factor.to(deltas).reshape(-1, 1)
    return discounted(deltas, factor).where(mask, 0)


def length_adaptive_lambda(lengths: torch.Tensor, alpha: float) -> torch.Tensor:
    """Return a λ for each episode that grows with its length.

        λ_i = max(0, 1 - 1/(α T_i))                                               (Yue et al. 2025, arXiv:2504.05118)

    So Σ_k λ_i^k = 1/(1 - λ_i) is α T_i: a step's advantage reaches over a share α of the episode, if that is a step.

    Args:
        lengths: T_i [N].
        alpha: α, above 0.

    Returns:
        λ [N], 0 where α T_i is at most 1, and of rows without steps.
    """
    return (1 - 1 / (alpha * lengths.clamp(min=1).to(widest(lengths.device)))).clamp(min=0)
