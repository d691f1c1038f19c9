"""Estimators of KL(π || ref) from the log-probabilities of the actions taken, one value per step [N, T].

With r = ref(a|s) / π(a|s) and a ~ π (Schulman 2020, "Approximating KL divergence"); the full-vocabulary `exact` is the
policy's own `kl_divergence`. What the gradient of each is, against that of β Σ_t E[KL(π(.|s_t) || ref(.|s_t))]:

| estimator | in the reward (a constant per step) | in the loss (differentiated) |
|---|---|---|
| k1 = -log r | exact | zero in expectation, for weights that do not depend on lengths: the reference is ignored |
| k2 = (log r)²/2 | that of another penalty, E[k2], less its direct part | lacks the effect on later states |
| k3 = r - 1 - log r | lacks E[(1 - r) ∇log π], its direct part | that of KL(ref || π) step by step |
| exact | lacks the direct part ∇KL(s_t): may point away from the true gradient | the same as k2 |
"""

from __future__ import annotations

from collections.abc import Callable

import torch

Estimator = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def k1(log_probs: torch.Tensor, ref_log_probs: torch.Tensor) -> torch.Tensor:
    """Return log π - log ref: unbiased, of high variance, negative now and then."""
    return log_probs - ref_log_probs


def k2(log_probs: torch.Tensor, ref_log_probs: torch.Tensor) -> torch.Tensor:
    """Return (log π - log ref)² / 2: biased, of low variance, never negative."""
    return (log_probs - ref_log_probs).square() / 2


def k3(log_probs: torch.Tensor, ref_log_probs: torch.Tensor) -> torch.Tensor:
    """Return r - 1 - log r with r = ref / π: unbiased, of low variance, never negative."""
    log_ratio = ref_log_probs - log_probs
    return torch.expm1(log_ratio) - log_ratio


ESTIMATORS: dict[str, Estimator] = {"k1": k1, "k2": k2, "k3": k3}
EXACT = "exact"
