"""On-policy distillation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from gymnasium.vector import VectorEnv
from typing_extensions import override

from ..estimators import aggregation, baselines, kl, losses, returns
from ..rollout import Batch, Rollout
from ..settings import setting
from ._taught import Taught

SAMPLED, CENTRED = "sampled", "centred"


class Distillation(Taught):
    """On-policy distillation (Lu and Thinking Machines Lab 2025; Agarwal et al. 2023, "GKD", arXiv:2306.13649).

        A_{i,t} = log π_T(a_{i,t} | s_{i,t}) - log π(a_{i,t} | s_{i,t})
        L = - 1/N Σ_i Σ_t sg(min(ρ_{i,t}, ρ_max) A_{i,t}) log π(a_{i,t} | s_{i,t})

    The student acts; the teacher π_T scores each token by how much likelier it would have been. The expected gradient
    of L is ∇ Σ_t E[KL(π(.|s_t) || π_T(.|s_t))] with the distribution of the states held fixed: later steps are not
    summed, so it lacks what an action does to later states. A is of π as it is in each pass, which keeps this true of
    later passes over a rollout, up to ρ_max. Rewards are logged; they, and `gamma`, count with `reward_coef` only.
    Episodes without a verdict are left out, as by every agent.
    """

    name = "distillation"
    weights = staticmethod(aggregation.sequence_sum)
    advantages_stay = False  # A changes from pass to pass

    estimator: str = setting(
        "sampled",
        "How the gradient of the KL is estimated.",
        one_of=("sampled", "centred", "exact"),
        more='"sampled": from the actions taken. "centred": A plus KL(π || π_T) at s_t, a baseline (arXiv:2605.07865): '
        'the same expectation, less variance. "exact": the KL over all actions is differentiated.',
    )
    reward_coef: float = setting(
        0.0,
        "Weight of the advantages of RLOO, which are added to the teacher's.",
        low=0,
        more="Needs groups of at least 2.",
    )
    max_ratio: float = setting(5.0, "ρ_max.", low=1)

    @override
    def use_settings(self) -> None:
        super().use_settings()
        self.compares_groups = self.reward_coef > 0
        self.weighs_samples = self.estimator != kl.EXACT or self.reward_coef > 0  # else the surrogate is 0
        if not self.weighs_samples:
            idle = ("mismatch", "off_policy_mask", "max_ratio")
            self.refuse_idle("with estimator='exact', which weighs no samples", *idle)
        if not self.reward_coef:
            self.refuse_idle("without reward_coef", "normalize_rewards")

    @override
    def _use_policy(self, spec: Any, envs: VectorEnv) -> None:
        super()._use_policy(spec, envs)
        if self.estimator == kl.EXACT:
            self.anchor.estimator, self.anchor.place = kl.EXACT, "loss"

    @override
    def evaluated(self, rollout: Rollout) -> Rollout:
        """Return the rollout with the teacher's log-probabilities; centred, with -KL(π || π_T) as its values."""
        rollout, teacher = super().evaluated(rollout), self.anchor.reference
        if self.estimator != CENTRED or teacher is None:
            return rollout
        gap = self.updater.in_passes(lambda part: self.policy.evaluate(part, ("kl",), teacher)["kl"], rollout)
        return replace(rollout, values=-gap)

    @override
    def advantages(self, rollout: Rollout) -> torch.Tensor:
        credit = rollout.where_taught(rollout.required("ref_log_probs") - rollout.log_probs)
        if self.estimator == kl.EXACT:
            credit = torch.zeros_like(credit)  # the anchor's term of the loss does it
        elif self.estimator == CENTRED:
            credit = credit - rollout.where_taught(rollout.required("values"))
        if self.reward_coef:
            gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
            credit = credit + self.reward_coef * (gains - baselines.leave_one_out(gains, rollout))
        return credit

    @override
    def surrogate(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        credit = batch.advantages  # of the policy before the update
        if self.estimator != kl.EXACT:
            credit = credit + batch.where_taught(batch.log_probs - log_probs.detach())
        return losses.weighted_log_prob(log_probs, batch.log_probs, credit, self.max_ratio)

    @override
    def is_clipped(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        return (log_probs - batch.log_probs > math.log(self.max_ratio)) & self.weighs_samples
