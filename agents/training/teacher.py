"""A teacher: a frozen policy by the name of its run, checkpoint or model, for a student with the same actions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from gymnasium.vector import VectorEnv

from ..checks import SHOWN, first_line
from ..errors import UnknownModelError
from ..files import whole_folder
from ..fsdp import frozen_from, local, release_weights
from ..policies import NAMES, Policy, SavedPolicy
from ..policies.make import LANGUAGE
from .checkpoint import read_checkpoint
from .optimizer import MasterWeights

CHECKPOINT = "checkpoint"  # in a run folder
ALLOWED = "a run folder, a checkpoint, the folder or id of a trained model"


def frozen_teacher(spec: Any, student: Policy, env: VectorEnv, temperature: float | None = None) -> Policy:
    """Return a frozen policy that can teach the student, on its device.

    Args:
        spec: a run folder, a checkpoint, the folder or id of a language model, or a policy, which is copied.
        student: which learns from it; a teacher on the base of its adapter shares the base weights.
        env: where the student acts.
        temperature: at which the teacher is evaluated; None for the student's.

    Raises:
        ValueError: for something else, and a teacher that does not exist, has random weights, or has other actions than
            the student.
    """
    if not isinstance(spec, (str, Path, Policy)):
        said = " ".join(repr(spec).split())[:SHOWN]
        raise ValueError(f"teacher={said} is not a teacher; allowed: {ALLOWED}, or a policy")
    if isinstance(spec, Policy):
        teacher = frozen_from(student, lambda whole: _read(spec, whole, env))
    else:
        with named_teacher(spec):
            found = saved_policy(Path(spec)) or spec
            teacher = frozen_from(student, lambda whole: _read(found, whole, env))
    teacher.adopt_tokenizer(env.metadata)
    if hasattr(teacher, "temperature"):
        teacher.temperature = student.temperature if temperature is None else temperature
    elif temperature is not None:
        raise ValueError(f"teacher_temperature={temperature:g}: a policy of kind {student.kind!r} has no temperature")
    return teacher.to(student.device).requires_grad_(False)


def whole_copy(policy: Any) -> Policy:
    """Return a frozen copy with each weight of the policy, also those of an adapter that changes nothing yet."""
    copied: Policy = policy.on_the_same_base(True) if getattr(policy, "adapter", None) else policy.frozen_copy()
    return copied


class SelfTeacher:
    """The weights with which a policy teaches itself, in the reference of its agent's KL anchor.

    Args:
        agent: with the anchor.
        rate: share of the present weights that every `follow` takes into their exponential mean, in float32 at least;
            0 to stay with those of the start.
    """

    def __init__(self, agent: Any, rate: float) -> None:
        self.agent, self.rate = agent, rate
        self._mean: MasterWeights | None = None

    @property
    def mean(self) -> MasterWeights:
        """The reference's weights, those of 16 bits in float32."""
        if self._mean is None:
            self._mean = MasterWeights(self.agent.anchor.reference.parameters())
        return self._mean

    @torch.no_grad()
    def follow(self) -> None:
        """Move the mean: θ' ← θ' + rate (θ - θ')."""
        policy, teacher, trained = self.agent.policy, self.agent.anchor.reference, self.agent.policy_optimizer.weights
        if not self.rate or teacher is None:
            return
        release_weights(policy, teacher)
        kept = dict(teacher.named_parameters())
        for name, weight in policy.named_parameters():
            if weight.requires_grad:
                (mean,), (present,) = self.mean.of([kept[name]]), trained.of([weight])
                local(mean).lerp_(local(present), self.rate)
        self.mean.copy_down()

    def state_dict(self) -> dict[str, Any]:
        """Return the float32 copies of a mean; the rest of the reference is saved as it is."""
        return {"mean": self.mean.state()} if self.rate and self.agent.anchor.reference is not None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        if state:
            self.mean.load(state["mean"])


def _read(spec: Any, student: Policy, env: VectorEnv) -> Any:
    """Return a teacher with the student's actions: a copy of a policy, one that was saved, or a model by its name."""
    if isinstance(spec, (Policy, SavedPolicy)) and spec.kind != student.kind:
        raise ValueError(f"the teacher is a policy of kind {spec.kind!r}, and its student one of kind {student.kind!r}")
    if student.kind == LANGUAGE:
        from ..language.teacher import read_teacher  # slow to import

        return read_teacher(spec, cast(Any, student), env)
    if isinstance(spec, SavedPolicy):
        return spec.load(env.single_observation_space, env.single_action_space)
    if not isinstance(spec, Policy):
        raise ValueError(
            f"the teacher {str(spec)!r} is neither a run folder nor a checkpoint; allowed: one with a policy of "
            f"kind {student.kind!r}, as its student is"
        )
    theirs, ours = (getattr(each, "action_space", None) for each in (spec, student))
    if theirs != ours:
        raise ValueError(f"the teacher's actions are {theirs}, its student's {ours}; they must be the same")
    return spec.frozen_copy()


@contextmanager
def named_teacher(spec: str | Path) -> Iterator[None]:
    """Refuse, as a teacher, the name of a model that is not trained or that is not found in this context.

    Raises:
        ValueError: with what is allowed.
    """
    if str(spec) in NAMES:
        raise ValueError(f"the teacher {str(spec)!r} would have random weights; allowed: {ALLOWED}")
    try:
        yield
    except UnknownModelError as error:
        if Path(spec).exists():  # then the error may name another model, such as the base of an adapter
            raise
        reason = first_line(error.__cause__ or error)
        raise ValueError(
            f"the teacher {str(spec)!r} is neither a folder that exists nor a model's id ({reason}); allowed: {ALLOWED}"
        ) from error


def saved_policy(path: Path) -> SavedPolicy | None:
    """Return the policy in the newest checkpoint of a run folder, or in a checkpoint; None for anything else.

    Raises:
        ValueError: if the checkpoint is damaged.
    """
    for folder in (path / CHECKPOINT, path):
        if (whole_folder(folder) / "agent.json").is_file():
            return read_checkpoint(folder).policy
    return None
