"""Returns of steps, before any baseline: the episode's return, or the return from that step on."""

from __future__ import annotations

import torch


def return_to_go(rewards: torch.Tensor, mask: torch.Tensor, gamma: float = 1.0) -> torch.Tensor:
    """Return the discounted sum of the rewards from each step on.

        G_t = r_t + γ G_{t+1}                                                     (Sutton & Barto 2018, eq. 3.9)

    Args:
        rewards: [N, T]; masked cells are ignored.
        mask: which steps exist, bool [N, T].
        gamma: γ, 0 to 1.

    Returns:
        G [N, T], 0 in masked cells.
    """
    rewards = rewards.where(mask, 0)
    if gamma == 1.0:
        return rewards.flip(1).cumsum(1).flip(1).where(mask, 0)
    return discounted(rewards, gamma).where(mask, 0)


def discounted_sum(rewards: torch.Tensor, mask: torch.Tensor, gamma: float = 1.0) -> torch.Tensor:
    """Return the discounted sum of the rewards up to each step.

        F_t = γ F_{t-1} + r_t

    Args:
        rewards: [N, T]; masked cells are ignored.
        mask: which steps exist, bool [N, T].
        gamma: γ, 0 to 1.

    Returns:
        F [N, T], 0 in masked cells.
    """
    return return_to_go(rewards.flip(1), mask.flip(1), gamma).flip(1)


def episode_return(rewards: torch.Tensor, mask: torch.Tensor, gamma: float = 1.0) -> torch.Tensor:
    """Return the discounted return of the whole episode at each of its steps.

        R = Σ_t γ^t r_t                                                           (Williams 1992, episodic REINFORCE)

    Args:
        rewards: [N, T]; masked cells are ignored.
        mask: which steps exist, bool [N, T].
        gamma: γ, 0 to 1.

    Returns:
        R in every cell of the episode's row, the masked ones included, so that episodes can be compared [N, T].
    """
    return return_to_go(rewards, mask, gamma)[:, :1].expand(rewards.shape)


def discounted(values: torch.Tensor, factor: float | torch.Tensor) -> torch.Tensor:
    """Return v_t + factor v_{t+1} + factor² v_{t+2} + ... [N, T], in log2 T sums instead of T; factors may be [N, 1].

    A cell holds the sum over n steps, then that over 2n: its own, and that of the cell n steps later.
    """
    span = 1
    while span < values.shape[1]:
        values = torch.cat([values[:, :-span] + factor**span * values[:, span:], values[:, -span:]], 1)
        span *= 2
    return values


def overlong_penalty(lengths: torch.Tensor, max_steps: int, buffer: int) -> torch.Tensor:
    """Return the penalty of an episode for coming near the longest one possible.

        0 up to L_max - buffer, then (T_i - (L_max - buffer)) / buffer, 1 at L_max         (Yu et al. 2025, eq. 13)

    Args:
        lengths: T_i [N].
        max_steps: L_max.
        buffer: steps over which the penalty rises, at least 1.

    Returns:
        Penalties [N], 0 to 1.
    """
    return ((lengths - (max_steps - buffer)) / buffer).clamp(0, 1)


def hold_last(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Let an ended episode keep the value of its last step, so that episodes of unequal length can be compared.

    Args:
        values: [N, T].
        mask: which steps exist, the first ones of each row, bool [N, T].

    Returns:
        [N, T] with v_{T_i} in the cells after the end of episode i.
    """
    last = values.gather(1, (mask.sum(1, keepdim=True) - 1).clamp(min=0))  # [N, 1]
    return values.where(mask, last)
