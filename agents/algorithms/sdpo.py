"""SDPO: the policy learns from its own probabilities after a hint."""

from __future__ import annotations

from typing import Literal

from rlenv._settings import setting

from ..estimators import kl
from ..settings import by_settings
from ..training.teacher import Lesson
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

    estimator: Literal["sampled", "centred", "exact"] = setting(default=kl.EXACT)
    teacher_weights: Literal["averaged", "live", "start"] = setting(
        fixed=True,
        default="averaged",
        help="Whose weights read the hint, unless a teacher is given.",
        more='"averaged": θ\' ← θ\' + average_rate (θ - θ\') before every update. "live": those that are trained. '
        '"start": those that training starts from.',
    )
    average_rate: float = setting(
        fixed=True, default=0.05, help="Share of the present weights in their mean, per update.", above=0, high=1
    )
    divergence: Literal["kl", "forward-kl", "jensen-shannon"] = setting(
        fixed=True,
        default="kl",
        help="What the exact estimator brings down.",
        more='"kl": KL(π || π\'). "forward-kl": KL(π\' || π). "jensen-shannon": the mean KL of both to their mixture.',
    )
    max_hint_tokens: int = setting(
        fixed=True, default=512, help="Tokens of the longest right answer that is shown; feedback is cut to so many."
    )

    lesson = by_settings(
        lambda self: Lesson(
            divergence=self.divergence if self.estimator == kl.EXACT else None,
            weights="given" if self.teacher is not None else self.teacher_weights,
            rate=self.average_rate,
            hint_tokens=self.max_hint_tokens,
        )
    )
    idle_settings = by_settings(
        lambda self: {
            **super().idle_settings,
            "with a teacher": () if self.teacher is None else ("teacher_weights", "average_rate"),
            "without averaged weights": () if self.teacher_weights == "averaged" else ("average_rate",),
            f"with estimator={self.estimator!r}": () if self.estimator == kl.EXACT else ("divergence",),
        }
    )
