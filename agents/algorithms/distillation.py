"""On-policy distillation."""

from __future__ import annotations

import math
from typing import Literal

import torch
from typing_extensions import override

from rlenv._settings import setting

from ..estimators import aggregation, baselines, clipping, kl, returns
from ..rollout import Batch, Rollout
from ..settings import by_settings
from ..training.proximal import PassesAgent
from ..training.teacher import Lesson
from .options import TaughtOptions

SAMPLED, CENTRED = "sampled", "centred"


class Distillation(PassesAgent, TaughtOptions):
    """On-policy distillation (Lu and Thinking Machines Lab 2025; Agarwal et al. 2023, "GKD", arXiv:2306.13649).

        A_{i,t} = log π_T(a_{i,t} | s_{i,t}) - log π(a_{i,t} | s_{i,t})
        L = - 1/N Σ_i Σ_t sg(min(ρ_{i,t}, ρ_max) A_{i,t}) log π(a_{i,t} | s_{i,t})

    The student acts; the teacher π_T scores each token by how much likelier it would have been. The expected gradient
    of L is ∇ Σ_t E[KL(π(.|s_t) || π_T(.|s_t))] with the distribution of the states held fixed: later steps are not
    summed, so it lacks what an action does to later states. A is of π as it is in each pass, which keeps this true of
    later passes over a rollout, up to ρ_max. Rewards are logged; they, and `gamma`, count with `reward_coef` only.
    Episodes without a verdict are left out, as by every agent. The teacher is a frozen policy, checked and saved as the
    reference of the KL anchor. A loaded agent has the one that was saved with it, unless `load` is given another.

    Raises:
        ValueError: for a teacher with other tokens, a preset, or one that does not exist; from `learn`, without one.
    """

    name = "distillation"
    weights = staticmethod(aggregation.sequence_sum)
    advantages_stay = False  # A changes from pass to pass
    needs_teacher = True

    estimator: Literal["sampled", "centred", "exact"] = setting(
        fixed=True,
        default="sampled",
        help="How the gradient of the KL is estimated.",
        more='"sampled": from the actions taken. "centred": A plus KL(π || π_T) at s_t, a baseline (arXiv:2605.07865): '
        'the same expectation, less variance. "exact": the KL over all actions is differentiated.',
    )
    reward_coef: float = setting(
        default=0.0,
        help="Weight of the advantages of RLOO, which are added to the teacher's.",
        low=0,
        more="Needs groups of at least 2.",
    )
    max_ratio: float = setting(default=5.0, help="ρ_max.", low=1)

    compares_groups = by_settings(lambda self: self.reward_coef > 0)
    lesson = by_settings(lambda self: Lesson(divergence="kl" if self.estimator == kl.EXACT else None))
    extras = by_settings(
        lambda self: ("teacher_log_probs", "teacher_kl") if self.estimator == CENTRED else ("teacher_log_probs",)
    )
    idle_settings = by_settings(
        lambda self: {
            "with a teacher, which the KL anchor of this agent holds": ("kl_coef", "kl_estimator", "kl_in", "kl_ratio"),
            "without teacher": () if self.teacher is not None else ("teacher_temperature",),
            "without reward_coef": () if self.reward_coef else ("normalize_rewards",),
            "with estimator='exact', which weighs no samples": ()
            if self._weighs_samples
            else ("mismatch", "off_policy_mask", "max_ratio"),
        }
    )

    @property
    def _weighs_samples(self) -> bool:
        """Whether the surrogate is more than 0: with the exact KL, rewards alone make it so."""
        return self.estimator != kl.EXACT or self.reward_coef > 0

    @override
    def advantages(self, rollout: Rollout) -> torch.Tensor:
        credit = rollout.where_taught(rollout.required("teacher_log_probs") - rollout.log_probs)
        if self.estimator == kl.EXACT:
            credit = torch.zeros_like(credit)  # the anchor's term of the loss does it
        elif self.estimator == CENTRED:
            credit = credit + rollout.where_taught(rollout.required("teacher_kl"))
        if self.reward_coef:
            gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
            credit = credit + self.reward_coef * (gains - baselines.leave_one_out(gains, rollout))
        return credit

    @override
    def surrogate(self, log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
        credit = batch.advantages  # of the policy before the update
        if self.estimator != kl.EXACT:
            credit = credit + batch.where_taught(batch.log_probs - log_probs.detach())
        batch.note_clipped((log_probs - batch.log_probs > math.log(self.max_ratio)) & self._weighs_samples)
        return clipping.weighted_log_prob(log_probs, batch.log_probs, credit, self.max_ratio)
