"""The KL anchor: a penalty on moving away from the policy that training started from."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from gymnasium.vector import VectorEnv

from ..errors import DivergedError
from ..estimators import kl
from ..fsdp import frozen_from
from ..policies import Policy
from ..policies.base import weights_digest
from ..policies.choosing import Evaluated
from ..rollout import Batch, Rollout
from ..rollouts.collector import Collector


class Anchor:
    """A frozen reference policy and a penalty β·KL for leaving it, in the reward or in the loss.

    In the reward, each step pays β times the estimate of the KL at that step, a constant; in the loss, the estimate is
    differentiated. `estimators/kl.py` says what each combination does to the gradient; k1 in the reward is exact.

    Args:
        settings: the agent, or the lesson of one with a teacher, whose `kl_coef` (β; with 0 no reference is kept and
            nothing is computed), `kl_estimator`, `kl_in` ("reward" or "loss") and `kl_ratio` count at every use.

    Attributes:
        divergence: the divergence that "exact" computes, a name in `kl.DIVERGENCES`.
        is_teacher: whether the reference is a teacher, which is kept for any β.
        is_frozen: whether the reference stays as it was set; False if it is the trained policy or follows it.
        reference: frozen; None until `freeze_reference` was called or a checkpoint set it.
    """

    divergence = "kl"
    is_teacher = False
    is_frozen = True

    def __init__(self, settings: Any) -> None:
        self.settings, self.reference = settings, None

    # What `teacher.Teaching` does in its own way.

    def copy_of(self, policy: Policy) -> Policy:
        """Return the frozen copy of a policy."""
        return policy.frozen_copy()

    def meet(self, env: VectorEnv, collector: Collector) -> None:
        """Prepare for an environment, before anything is played in it."""

    def hinted(self, rollout: Rollout) -> Rollout:
        """Return a rollout with the reference's observations, if they differ from the policy's."""
        return rollout

    def follow(self) -> None:
        """Move the reference before an update, if it follows the policy."""

    @property
    def is_compared(self) -> bool:
        """Whether rewards or the loss need the log-probabilities of a reference that is not a teacher."""
        return bool(self.settings.kl_coef) and self.reference is not None and not self.is_teacher

    @property
    def is_in_loss(self) -> bool:
        """Whether the loss has a KL term."""
        return bool(self.settings.kl_coef and self.settings.kl_in == "loss") and self.reference is not None

    @property
    def wants_kl(self) -> bool:
        """Whether the loss has the KL over all actions, which the policy evaluates together with the rest."""
        return self.is_in_loss and self.settings.kl_estimator == kl.EXACT

    def freeze_reference(self, policy: Policy) -> None:
        """Keep a frozen copy of this policy as the reference, if there is none yet and one is needed."""
        if (self.settings.kl_coef or self.is_teacher) and self.reference is None:
            self.reference = frozen_from(policy, self.copy_of)

    def warn_if_ignored(self) -> None:
        """Warn of a penalty without an expected gradient (`estimators/kl.py`); it points to the caller of `learn`."""
        if self.is_in_loss and self.settings.kl_estimator == "k1" and self.settings.kl_ratio != "differentiated":
            warnings.warn(
                "kl_estimator='k1' in the loss has no expected gradient, so the policy is not held near the reference; "
                "set kl_estimator='k2' or 'exact', or kl_in='reward'",
                stacklevel=4,
            )

    def check_kept(self) -> None:
        """Check that there is a reference, if the settings need one, once training has begun.

        Raises:
            ValueError: if there is none, for a `kl_coef` that was 0 then.
        """
        if self.settings.kl_coef and self.reference is None:
            raise ValueError(
                f"kl_coef={self.settings.kl_coef:g} needs the policy that training started from, which was not kept; "
                "begin with a kl_coef above 0, such as 1e-9"
            )

    @property
    def reference(self) -> Policy | None:
        """The frozen policy that the trained one is compared with."""
        return self._reference

    @reference.setter
    def reference(self, policy: Policy | None) -> None:
        self._reference = policy
        self._digest = weights_digest(policy) if policy is not None and self.is_frozen else ""

    def check_reference(self) -> None:
        """Check that the reference has the weights that it had when it was set.

        Raises:
            DivergedError: if its weights have changed.
        """
        if self.reference is not None and self.is_frozen and weights_digest(self.reference) != self._digest:
            raise DivergedError("the weights of the KL reference have changed: it shares memory with what is trained")

    def loss_term(self, policy: Policy, batch: Batch, log_probs: torch.Tensor, found: Evaluated) -> torch.Tensor:
        """Return β times the estimate of the KL at every step, with its ratio to the policy that sampled [N, T].

        With importance weights, the log-probabilities of the batch are of a training pass, and the ratio is that to it
        times the weight. `found` is as for `penalty`.
        """
        ratio = kl.RATIOS[self.settings.kl_ratio](log_probs, batch.log_probs)
        if "importance" in batch.extras and self.settings.kl_ratio != "none":
            ratio = ratio * batch.extras["importance"]
        return batch.where_taught(self.settings.kl_coef * ratio * self.penalty(policy, batch, log_probs, found))

    def penalty(
        self, policy: Policy, rollout: Rollout, log_probs: torch.Tensor, found: Evaluated | None = None
    ) -> torch.Tensor:
        """Return the estimate of the KL at every step [N, T], differentiable if `log_probs` are.

        `found` is what the policy evaluated already, "kl" included if `wants_kl`.

        Raises:
            ValueError: for a rollout without the log-probabilities of the reference.
        """
        if self.settings.kl_estimator == kl.EXACT:
            name = self.divergence
            return (found or policy.evaluate(rollout, (name,), self.reference))[name]
        return kl.ESTIMATORS[self.settings.kl_estimator](log_probs, rollout.required("ref_log_probs"))
