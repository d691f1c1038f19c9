"""Exploration noise that lasts for several steps: generalized state-dependent exploration."""

from __future__ import annotations

from typing import NamedTuple

import torch
from stable_baselines3.common.distributions import StateDependentNoiseDistribution


class HeldNoise(NamedTuple):
    """What a policy with gSDE remembers between steps: an exploration matrix per slot, and since how many steps.

    Attributes:
        matrices: [B, F, A], of F features and A action dimensions.
        ages: int64 [B].
    """

    matrices: torch.Tensor
    ages: torch.Tensor


def held_sample(
    distribution: StateDependentNoiseDistribution,
    log_std: torch.Tensor,
    held: HeldNoise | None,
    episode_start: torch.Tensor,
    sample_freq: int,
    generator: torch.Generator | None,
) -> tuple[torch.Tensor, HeldNoise]:
    """Return actions [B, A] whose noise is linear in the features of the observation, and what to remember.

        a_t = μ(s_t) + θ^T φ(s_t)        θ ~ N(0, σ²), drawn every `sample_freq` steps   (Raffin et al. 2021, eq. 4)

    Given the observation alone, the actions have the distribution that is passed in: their log-probabilities are of
    that, as in stable-baselines3.

    Args:
        distribution: of the actions, for the present observations.
        log_std: log σ, the policy's parameter.
        held: what the last step returned; None at first.
        episode_start: where a new episode begins, bool [B].
        sample_freq: steps for which a matrix is kept, at most to the end of the episode.
        generator: of the noise.
    """
    features = distribution._latent_sde  # [B, F]
    std = distribution.get_std(log_std)  # [F, A]
    drawn = torch.empty(len(features), *std.shape, dtype=std.dtype, device=std.device)
    drawn = drawn.normal_(generator=generator) * std
    matrices, ages = drawn, torch.zeros(len(features), dtype=torch.int64, device=std.device)
    if held is not None:
        keeps = ~episode_start.to(std.device) & (held.ages < sample_freq)
        matrices = torch.where(keeps[:, None, None], held.matrices, drawn)
        ages = held.ages.where(keeps, 0)
    noisy = distribution.distribution.mean + torch.einsum("bf,bfa->ba", features, matrices)
    squash = distribution.bijector
    return noisy if squash is None else squash.forward(noisy), HeldNoise(matrices, ages + 1)
