"""When an update must not happen: figures that are not finite, and acting that differs from training."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..errors import DivergedError
from ..fsdp import full
from ..policies import Policy
from .optimizer import half_precision

LOG_PROB_TOLERANCE = 0.05  # nats; rounding is a thousand times smaller, the mildest known bug several times larger
# Weights of 16 bits round the log-probability of an unlikely action by up to 0.7 nats, but few actions are unlikely:
# their limit is for train/approx_kl. Rounding makes 0.0003 there in the default run, and never more than 0.0025.
HALF_KL_TOLERANCE = 0.02


def check_log_probs(policy: Policy, metrics: Mapping[str, float]) -> None:
    """Stop if acting and training differ by more than rounding explains.

    Raises:
        DivergedError: if they do.
    """
    gap, limit, said = metrics["train/logp_gap_max"], LOG_PROB_TOLERANCE, "differ by {:.3g} nats"
    if half_precision(policy):
        gap, limit, said = metrics["train/approx_kl"], HALF_KL_TOLERANCE, "differ by a KL of {:.3g} nats"
    if not gap <= limit:
        raise DivergedError(
            f"log-probabilities while acting and training {said.format(gap)} "
            f"(at most {limit} is rounding): the policy that sampled is not the one being trained (if it "
            "is meant to be an older one, set mismatch), or its actions have become so unlikely that rounding counts; "
            "then lower learning_rate"
        )


def fault_of(policy: Policy, metrics: Mapping[str, float]) -> str:
    """Return the figure that is not finite though all weights are; empty if there is none."""
    names = {"train/logp_gap_max": "log-probabilities", "train/loss": "loss"}
    fault = next((said for name, said in names.items() if not math.isfinite(metrics[name])), "")
    broken = sum(int((~full(p).isfinite()).sum()) for p in policy.parameters()) if fault else 0
    if broken:
        raise DivergedError(
            f"the policy has {broken} weights that are NaN or infinite: load others, or lower learning_rate"
        )
    return fault
