"""One choice out of A, given the log-probabilities of all: how it is drawn, and how it is evaluated."""

from __future__ import annotations

from collections.abc import Collection

import torch

from ..devices import widest
from ..estimators.kl import DIVERGENCES

MANY_ACTIONS = 4096  # see `sample_categorical`
Source = torch.Generator | torch.Tensor | None  # of randomness; see `sample_categorical`
Want = Collection[str]  # names of quantities; see `Policy.evaluate`
Evaluated = dict[str, torch.Tensor]  # by name
LOG_PROBS = ("log_probs",)


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
    precision = widest(log_probs.device)  # in float32, rare actions vanish
    sums = (log_probs - most).exp_().cumsum(-1, dtype=precision)
    found = torch.searchsorted(sums, uniform[..., None] * sums[..., -1:], right=True)[..., 0]
    return found.clamp(max=log_probs.shape[-1] - 1)  # an index, even if something is NaN


def choose(log_probs: torch.Tensor, deterministic: bool, source: Source) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the most likely or sampled actions and their log-probabilities [B], given all log-probabilities [B, V]."""
    actions = log_probs.argmax(-1) if deterministic else sample_categorical(log_probs, source)
    return actions, log_probs.gather(1, actions[:, None])[:, 0]


def evaluate_choices(
    log_probs: torch.Tensor,
    actions: torch.Tensor,
    want: Want,
    ref_log_probs: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
) -> Evaluated:
    """Return the wanted quantities of chosen actions [...]; see `Policy.evaluate`.

    Args:
        log_probs: of every action [..., A].
        actions: the chosen ones, int64 [...].
        want: names.
        ref_log_probs: of every action under the reference of "kl" [..., A]; a constant.
        mask: where the quantities are not 0, bool [...]; None for everywhere.

    Raises:
        ValueError: for "kl" without `ref_log_probs`.
    """
    found = {}
    if "log_probs" in want:
        found["log_probs"] = log_probs.gather(-1, actions[..., None])[..., 0]
    if "entropy" in want:
        found["entropy"] = -(log_probs.exp() * log_probs).sum(-1)
    for name in DIVERGENCES.keys() & want:
        if ref_log_probs is None:
            raise ValueError("the exact KL needs the reference's log-probabilities of all actions; use k1, k2 or k3")
        found[name] = DIVERGENCES[name](log_probs, ref_log_probs.detach())
    if "score_norms" in want:
        found["score_norms"] = score_norms(log_probs.detach(), actions)
    return found if mask is None else {name: values.where(mask, 0) for name, values in found.items()}


def score_norms(log_probs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Return how far a choice can move the logits that it was drawn with: |∇ log π(a)|² in the logits [...].

        |1_a - π|² = (1 - π(a))² + Σ_{v≠a} π(v)² = 1 - 2 π(a) + Σ_v π(v)²

    The sum in the middle keeps the digits of `log_probs` where π(a) is near 1, in float32 up to 1 - π(a) of about 3e-4;
    the last form would be rounding errors there.

    Args:
        log_probs: log π of every action [..., A].
        actions: the chosen ones, int64 [...].
    """
    index = actions[..., None]
    others = log_probs.scatter(-1, index, -torch.inf).exp().square().sum(-1)
    return log_probs.gather(-1, index)[..., 0].expm1().square() + others
