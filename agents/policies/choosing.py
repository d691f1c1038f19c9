"""Which action is taken, given the log-probabilities of all: the likeliest one, or one that is sampled."""

from __future__ import annotations

import torch

MANY_ACTIONS = 4096  # see `sample_categorical`
Source = torch.Generator | torch.Tensor | None  # of randomness; see `sample_categorical`


def sample_categorical(log_probs: torch.Tensor, source: Source) -> torch.Tensor:
    """Draw from categorical distributions: by one number for each of them, or from a generator.

    One number is the place in the cumulative sums, of which the first that is above it is taken. A generator draws E ~
    Exp(1) for each action, of which the one with the highest log p - log E is taken (Gumbel-max). On a CPU, that takes
    longer than a small model, so there one number is drawn from `MANY_ACTIONS` on.

    Args:
        log_probs: [..., V], normalized or not.
        source: numbers in [0, 1), float64 [...]. Or a generator on the same device; None for torch's global one.

    Returns:
        Indices [...].
    """
    if isinstance(source, torch.Tensor):
        return _invert(log_probs, source)
    if log_probs.device.type == "cpu" and log_probs.shape[-1] >= MANY_ACTIONS:
        return _invert(log_probs, torch.rand(log_probs.shape[:-1], dtype=torch.float64, generator=source))
    noise = torch.empty_like(log_probs).exponential_(generator=source)
    return (log_probs - noise.log()).argmax(-1)


def _invert(log_probs: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Return the first action a of each distribution with p_0 + ... + p_a > u, int64 [...].

    Args:
        log_probs: [..., V], normalized or not.
        uniform: u as a share of all p, in [0, 1), float64 [...].
    """
    most = log_probs.amax(-1, keepdim=True)
    sums = (log_probs - most).exp_().cumsum(-1, dtype=torch.float64)  # in float32, rare actions would vanish
    found = torch.searchsorted(sums, uniform[..., None] * sums[..., -1:], right=True)[..., 0]
    return found.clamp(max=log_probs.shape[-1] - 1)  # an index, even if something is NaN


def choose(log_probs: torch.Tensor, deterministic: bool, source: Source) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the most likely or sampled actions and their log-probabilities [B], given those of all actions [B, V]."""
    actions = log_probs.argmax(-1) if deterministic else sample_categorical(log_probs, source)
    return actions, log_probs.gather(1, actions[:, None])[:, 0]
