"""Estimators of KL(π || ref) from the log-probabilities of the actions taken, one value per step [N, T].

With r = ref(a|s) / π(a|s) and a ~ π (Schulman 2020, "Approximating KL divergence"); the full-vocabulary `exact` is the
policy's own, from `evaluate`. What the gradient of each is, against that of β Σ_t E[KL(π(.|s_t) || ref(.|s_t))]:

| estimator | in the reward (a constant per step) | in the loss (differentiated) |
|---|---|---|
| k1 = -log r | exact | zero in expectation, for weights that do not depend on lengths: the reference is ignored |
| k2 = (log r)²/2 | that of another penalty, E[k2], less its direct part | lacks the effect on later states |
| k3 = r - 1 - log r | lacks E[(1 - r) ∇log π], its direct part | that of KL(ref || π) step by step |
| exact | lacks the direct part ∇KL(s_t): may point away from the true gradient | the same as k2 |

In the loss the actions have to be those of π. In later passes they are π_old's, and each estimate needs the factor
ρ = π/π_old of its step (`RATIOS`). As a constant it is 1 in the first pass; differentiated, it changes that one, too:

| estimator in the loss | no ratio, a ~ π_old | constant ratio | differentiated ratio |
|---|---|---|---|
| k1 | away from π_old: -∇KL(π_old ‖ π) step by step | zero in expectation | ∇KL(π ‖ ref) step by step |
| k2 | E_old[log(π/ref) ∇log π] | ∇KL(π ‖ ref) step by step | ∇E[k2] step by step |
| k3 | E_old[(1 - r) ∇log π] | ∇KL(ref ‖ π) step by step | ∇KL(π ‖ ref) step by step |

"Step by step": in the states that π_old visits. (arXiv:2510.01555 for the constant ratio with k2; DeepSeek-V3.2,
arXiv:2512.02556, for the differentiated one with k3; arXiv:2512.21852 for more of them.)
"""

from __future__ import annotations

import math
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


# Over all actions, given their log-probabilities [..., A]; the reference's are constants.


def reverse_kl(log_pi: torch.Tensor, log_ref: torch.Tensor) -> torch.Tensor:
    """Return KL(π || ref) [...]."""
    return (log_pi.exp() * (log_pi - log_ref)).sum(-1)


def forward_kl(log_pi: torch.Tensor, log_ref: torch.Tensor) -> torch.Tensor:
    """Return KL(ref || π) [...]."""
    return reverse_kl(log_ref, log_pi)


def jensen_shannon(log_pi: torch.Tensor, log_ref: torch.Tensor) -> torch.Tensor:
    """Return (KL(π || m) + KL(ref || m)) / 2 with m = (π + ref) / 2 [...]."""
    mixed = torch.logaddexp(log_pi, log_ref) - math.log(2)
    return (reverse_kl(log_pi, mixed) + reverse_kl(log_ref, mixed)) / 2


DIVERGENCES: dict[str, Estimator] = {"kl": reverse_kl, "forward-kl": forward_kl, "jensen-shannon": jensen_shannon}


def no_ratio(log_probs: torch.Tensor, old_log_probs: torch.Tensor) -> float:
    """Return 1."""
    return 1.0


def constant_ratio(log_probs: torch.Tensor, old_log_probs: torch.Tensor) -> torch.Tensor:
    """Return π/π_old without a gradient."""
    return (log_probs - old_log_probs).detach().exp()


def differentiated_ratio(log_probs: torch.Tensor, old_log_probs: torch.Tensor) -> torch.Tensor:
    """Return π/π_old, with the gradient π/π_old ∇log π."""
    return (log_probs - old_log_probs.detach()).exp()


RATIOS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor | float]] = {
    "none": no_ratio,
    "constant": constant_ratio,
    "differentiated": differentiated_ratio,
}
