"""What a step is worth before any baseline: the episode's return, or the return from that step on."""

from __future__ import annotations

import torch


def return_to_go(rewards: torch.Tensor, mask: torch.Tensor, gamma: float = 1.0) -> torch.Tensor:
    """Return the discounted sum of the rewards from each step on.

        G_t = r_t + γ G_{t+1}                                                     (Sutton & Barto 2018, eq. 3.9)

    Args:
        rewards: [N, T]; what stands in masked cells has no effect.
        mask: which steps exist, bool [N, T].
        gamma: γ, 0 to 1.

    Returns:
        G [N, T], 0 in masked cells.
    """
    rewards = rewards.where(mask, 0)
    if gamma == 1.0:
        return rewards.flip(1).cumsum(1).flip(1).where(mask, 0)
    returns = torch.zeros_like(rewards)
    following = torch.zeros_like(rewards[:, 0])
    for t in reversed(range(rewards.shape[1])):
        following = rewards[:, t] + gamma * following
        returns[:, t] = following
    return returns.where(mask, 0)


def episode_return(rewards: torch.Tensor, mask: torch.Tensor, gamma: float = 1.0) -> torch.Tensor:
    """Return the discounted return of the whole episode at each of its steps.

        R = Σ_t γ^t r_t                                                           (Williams 1992, episodic REINFORCE)

    Args:
        rewards: [N, T]; what stands in masked cells has no effect.
        mask: which steps exist, bool [N, T].
        gamma: γ, 0 to 1.

    Returns:
        R at every step [N, T], 0 in masked cells.
    """
    total = return_to_go(rewards, mask, gamma)[:, :1]  # [N, 1]
    return total.expand(rewards.shape).where(mask, 0)


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
