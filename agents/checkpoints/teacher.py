"""A teacher: a frozen policy by the name of its run, checkpoint or model, for a student with the same actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv

from ..core.files import whole_folder
from ..policies import NAMES, Policy, SavedPolicy
from .checkpoint import read_checkpoint

CHECKPOINT = "checkpoint"  # in a run folder


def frozen_teacher(spec: Any, student: Policy, env: VectorEnv, temperature: float | None = None) -> Policy:
    """Return a frozen policy that can teach the student, on its device.

    Args:
        spec: a run folder, a checkpoint, the folder or id of a language model, or a policy, which is copied.
        student: which learns from it; a teacher on the base of its adapter shares the base weights.
        env: where the student acts.
        temperature: at which the teacher is evaluated; None for the student's.

    Raises:
        ValueError: for a teacher that does not exist, has random weights, or has other actions than the student.
    """
    if isinstance(spec, (str, Path)) and str(spec) in NAMES:
        raise ValueError(
            f"the teacher {str(spec)!r} would have random weights; allowed: a run folder, a checkpoint, or the folder "
            "or id of a trained model"
        )
    saved = None if isinstance(spec, Policy) else saved_policy(Path(spec))
    teacher = student.read_teacher(saved or spec, env)
    teacher.adopt_tokenizer(env.metadata)
    teacher.follow_temperature(student, temperature)
    return teacher.to(student.device).requires_grad_(False)


def saved_policy(path: Path) -> SavedPolicy | None:
    """Return the policy in the newest checkpoint of a run folder, or in a checkpoint; None for anything else.

    Raises:
        ValueError: if the checkpoint is damaged.
    """
    for folder in (path / CHECKPOINT, path):
        if (whole_folder(folder) / "agent.json").is_file():
            return read_checkpoint(folder).policy
    return None
