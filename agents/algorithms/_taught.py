"""What agents with a teacher share: they learn from another policy, which is the reference of their KL anchor."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import VectorEnv
from typing_extensions import override

from ..training.proximal import PassesAgent
from ..training.teacher import frozen_teacher
from .options import TaughtOptions


class Taught(PassesAgent, TaughtOptions):
    """An agent that learns from a teacher: a frozen policy, checked and saved as the reference of the KL anchor.

    A loaded agent has the teacher that was saved with it, unless `load` is given another.

    Raises:
        ValueError: for a teacher with other tokens, a preset, or one that does not exist; from `learn`, without one.
    """

    needs_teacher = True

    @override
    def use_settings(self) -> None:
        super().use_settings()
        if self.kl_coef:
            raise ValueError(f"kl_coef={self.kl_coef:g}: the KL anchor of this agent holds its teacher; omit kl_coef")
        for name, given in self._changed("kl_estimator", "kl_in", "kl_ratio").items():
            raise ValueError(f"{name}={given!r} is of a KL anchor, and this agent has a teacher: omit {name}")
        if self.teacher is None and self.teacher_temperature is not None:
            raise ValueError(f"teacher_temperature={self.teacher_temperature:g} is of a teacher: pass teacher, too")

    @override
    def _use_policy(self, spec: Any, envs: VectorEnv) -> None:
        super()._use_policy(spec, envs)
        self.anchor.coef, self.anchor.place = 1.0, "advantages"

    @override
    def use_env(self, env: VectorEnv, group_size: int | None = None) -> None:
        super().use_env(env, group_size)
        if self.teacher is not None and self.anchor.reference is None:
            self.anchor.reference = frozen_teacher(self.teacher, self.policy, env, self.teacher_temperature)

    @override
    def check_ready(self) -> None:
        super().check_ready()
        if self.anchor.reference is None and not self.teaches_itself:
            raise ValueError(
                f"{type(self).__name__} has no teacher: pass teacher=... (--teacher), the run folder, checkpoint, "
                "folder or id of a model with the same tokens"
            )

    @override
    def update(self, rollout: Any) -> dict[str, float]:
        metrics = super().update(rollout)  # "kl_ref" would say that the policy started from the reference
        return {"train/kl_teacher" if name == "train/kl_ref" else name: value for name, value in metrics.items()}
