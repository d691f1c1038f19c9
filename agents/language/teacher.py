"""The teacher of a language model: another one, with the same tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..policies.base import MODEL, Policy
from . import policy_folder
from .loading import base_of
from .policy import LanguageModelPolicy
from .vocabulary import check_ends, check_teacher


def read_teacher(spec: Any, student: LanguageModelPolicy, env: Any) -> LanguageModelPolicy:
    """Return a frozen policy with the student's tokens; one on the base of the student's adapter shares its weights.

    Args:
        spec: a policy, which is copied, one in a checkpoint (`SavedPolicy`), or the folder or id of a model.
        student: which learns from it.
        env: with the spaces of one environment, and its `metadata`.

    Raises:
        ValueError: for a model that cannot be loaded, has other tokens, or ends its answers with others.
    """
    spaces = env.single_observation_space, env.single_action_space
    teacher: LanguageModelPolicy
    if isinstance(spec, LanguageModelPolicy):
        if spec.vocab_size != student.vocab_size:
            raise ValueError(f"the teacher has {spec.vocab_size} tokens, and its student {student.vocab_size}")
        tokenizer = check_teacher(env.metadata, None, spec.tokenizer)
        teacher = Policy.frozen_copy(spec)  # whole: a base under its adapter is not that of the student
    elif isinstance(spec, (str, Path)):
        tokenizer = check_teacher(env.metadata, spec)
        dtype = str(student.model.dtype).removeprefix("torch.")
        teacher = _on_base_of(student, spec) or LanguageModelPolicy(*spaces, spec, dtype=dtype)
    else:
        tokenizer = check_teacher(env.metadata, spec.folder / MODEL)
        teacher = _on_base_of(student, spec.folder / MODEL) or spec.load(*spaces)
    teacher.critic = None
    check_ends(env.metadata, teacher.model, tokenizer)
    return teacher


def _on_base_of(student: LanguageModelPolicy, model: str | Path) -> Any:
    """Return a frozen policy of a model on the base of the student's adapter; None if that is not the model's."""
    _, name = base_of(model)
    if student.adapter is None or name is None or name != student.adapter.base_name:
        return None
    digest = policy_folder.saved_setting(Path(model).parent, policy_folder.DIGEST)  # if a policy was saved with it
    same = digest is None or digest == student.adapter.base_digest
    return policy_folder.with_adapter_of(student, model) if same else None
