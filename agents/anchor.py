"""The KL anchor: a price on moving away from the policy that training started from."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch

from .checks import check_choice, check_number
from .estimators import kl
from .policies import Policy
from .rollout import Rollout

Split = Callable[[Rollout], Iterable[Rollout]]
PLACES = ("reward", "loss")


class Anchor:
    """Holds the frozen reference and charges β·KL for leaving it, in the reward or in the loss.

    In the reward, every step is charged with β times the estimator of its own KL, a constant; in the loss, the
    estimator is differentiated. `estimators/kl.py` says what each combination does to the gradient; k1 in the reward
    is the exact one.

    Args:
        coef: β, at least 0; with 0 no reference is kept and nothing is computed.
        estimator: "k1", "k2", "k3" or "exact".
        place: "reward" or "loss".

    Raises:
        ValueError: for anything else.
    """

    def __init__(self, coef: float = 0.0, estimator: str = "k1", place: str = "reward") -> None:
        self.coef = check_number("kl_coef", coef, low=0.0)
        self.estimator = check_choice("kl_estimator", estimator, [*kl.ESTIMATORS, kl.EXACT])
        self.place = check_choice("kl_in", place, PLACES)
        self.reference: Policy | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The constructor arguments under the names that agents give them."""
        return {"kl_coef": self.coef, "kl_estimator": self.estimator, "kl_in": self.place}

    def hold(self, policy: Policy) -> None:
        """Freeze a copy of this policy as the reference, if there is none yet and it is needed."""
        if self.coef and self.reference is None:
            self.reference = copy.deepcopy(policy).requires_grad_(False)

    @torch.no_grad()
    def charge(self, policy: Policy, rollout: Rollout, split: Split = lambda whole: (whole,)) -> Rollout:
        """Return the rollout with the reference's log-probabilities, and rewards less β·KL where that is the place.

        Args:
            policy: the one that is trained.
            rollout: freshly collected.
            split: into what is evaluated at a time.
        """
        reference = self.reference
        if reference is None:
            return rollout
        ref_log_probs = torch.cat([reference.evaluate_actions(part, entropy=False)[0] for part in split(rollout)])
        rollout = replace(rollout, ref_log_probs=ref_log_probs)
        if self.place == "reward":
            penalty = torch.cat([self.penalty(policy, part, part.log_probs) for part in split(rollout)])
            rollout = replace(rollout, rewards=rollout.rewards - self.coef * penalty)
        return rollout

    def penalty(self, policy: Policy, rollout: Rollout, log_probs: torch.Tensor) -> torch.Tensor:
        """Return the estimator at every step [N, T], differentiable where `log_probs` are."""
        assert self.reference is not None and rollout.ref_log_probs is not None
        if self.estimator == kl.EXACT:
            return policy.kl_divergence(self.reference, rollout)
        return kl.ESTIMATORS[self.estimator](log_probs, rollout.ref_log_probs)
