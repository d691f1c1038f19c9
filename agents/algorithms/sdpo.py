"""SDPO: the policy teaches itself what it would have said after a hint."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium.vector import VectorEnv
from typing_extensions import override

from ..estimators import kl
from ..language.hints import feedback_speller
from ..rollout import Batch, Rollout
from ..settings import setting
from ..stateful import Stateful
from ..training.metrics import Reduce
from ..training.teacher import SelfTeacher, whole_copy
from .distillation import Distillation


class SDPO(Distillation):
    """Self-distillation (Hübotter et al. 2026, arXiv:2601.20802; Shenfeld et al. 2026, "SDFT", arXiv:2601.19897).

        L = 1/N Σ_i Σ_t KL(π(.|x, y_{<t}) || sg π'(.|x, hint_i, y_{<t}))

    The policy's own weights, or their mean π', read the prompt x with a hint: a right answer of another episode of the
    group or, without one, what the verdict says about the answer y. What they expect at each token of y is learned
    without the hint. Episodes without a hint teach nothing. The rest is `Distillation`.
    """

    name = "sdpo"
    default_group_size = 4
    teaches_itself = True
    reductions = {"train/taught_frac": Reduce.MEAN}

    estimator: str = setting(kl.EXACT)
    teacher_weights: str = setting(
        "averaged",
        "Whose weights read the hint, unless a teacher is given.",
        one_of=("averaged", "live", "start"),
        more='"averaged": θ\' ← θ\' + average_rate (θ - θ\') before every update. "live": those that are trained. '
        '"start": those that training starts from.',
    )
    average_rate: float = setting(0.05, "Share of the present weights in their mean, per update.", above=0, high=1)
    divergence: str = setting(
        "kl",
        "What the exact estimator brings down.",
        one_of=tuple(kl.DIVERGENCES),
        more='"kl": KL(π || π\'). "forward-kl": KL(π\' || π). "jensen-shannon": the mean KL of both to their mixture.',
    )
    max_hint_tokens: int = setting(512, "Tokens of the longest right answer that is shown; feedback is cut to so many.")

    @override
    def use_settings(self) -> None:
        super().use_settings()
        if self.teacher is not None:
            self.refuse_idle("with a teacher", "teacher_weights", "average_rate")
        elif self.teacher_weights != "averaged":
            self.refuse_idle("without averaged weights", "average_rate")
        if self.estimator != kl.EXACT:
            self.refuse_idle(f"with estimator={self.estimator!r}", "divergence")

    @override
    def _use_policy(self, spec: Any, envs: VectorEnv) -> None:
        super()._use_policy(spec, envs)
        if not hasattr(self.policy, "hinted"):
            raise ValueError(f"sdpo needs a policy that reads text, not a {type(self.policy).__name__}: take rloo")
        kind = "start" if self.teacher is not None else self.teacher_weights
        self.self_teacher = SelfTeacher(self, self.average_rate if kind == "averaged" else 0.0)
        self.anchor.divergence, self.anchor.is_frozen = self.divergence, kind == "start"
        if kind == "averaged":
            self.anchor.copy_of = whole_copy
        elif kind == "live":
            self.anchor.reference = self.policy

    @override
    def use_env(self, env: VectorEnv, group_size: int | None = None) -> None:
        super().use_env(env, group_size)
        self.collector.spell = feedback_speller(env.metadata, self.max_hint_tokens)

    @override
    def prepare(self, rollout: Rollout) -> Batch:
        policy: Any = self.policy  # one that reads text
        return super().prepare(policy.hinted(rollout, self.env.metadata, self.max_hint_tokens))

    @override
    def diagnose(self, log_probs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        taught = batch.total(batch.where_taught(torch.ones_like(log_probs)))
        return super().diagnose(log_probs, batch) | {"train/taught_frac": taught}

    @override
    def update(self, rollout: Any) -> dict[str, float]:
        self.updating = True
        self.self_teacher.follow()
        return super().update(rollout)

    @override
    def parts(self) -> dict[str, Stateful]:
        return super().parts() | {"self_teacher": self.self_teacher}
