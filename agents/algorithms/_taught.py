"""A teacher, shared by the agents that learn from another policy: it is the reference of their KL anchor."""

from __future__ import annotations

from ..settings import by_settings
from ..training.proximal import PassesAgent
from .options import TaughtOptions


class Taught(PassesAgent, TaughtOptions):
    """An agent that learns from a teacher: a frozen policy, checked and saved as the reference of the KL anchor.

    A loaded agent has the teacher that was saved with it, unless `load` is given another.

    Raises:
        ValueError: for a teacher with other tokens, a preset, or one that does not exist; from `learn`, without one.
    """

    needs_teacher = True
    idle_settings = by_settings(
        lambda self: {
            "with a teacher, which the KL anchor of this agent holds": ("kl_coef", "kl_estimator", "kl_in", "kl_ratio"),
            "without teacher": () if self.teacher is not None else ("teacher_temperature",),
        }
    )
