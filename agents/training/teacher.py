"""A teacher: a frozen policy by the name of its run, checkpoint or model, for a student with the same actions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from gymnasium.vector import VectorEnv
from typing_extensions import override

from rlenv._checks import SHOWN, first_line

from ..errors import UnknownModelError
from ..estimators import kl
from ..files import whole_folder
from ..fsdp import frozen_from, local, release_weights
from ..policies import NAMES, Policy, SavedPolicy
from ..policies.make import LANGUAGE
from ..rollout import Rollout
from ..rollouts.collector import Collector
from .checkpoint import read_checkpoint
from .kl_anchor import Anchor
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


@dataclass(frozen=True)
class Lesson:
    """A lesson: the divergence that an agent learns from, and the weights that teach.

    Attributes:
        divergence: that the loss brings down, over all actions, a name in `kl.DIVERGENCES`; None if the agent makes its
            advantages of "teacher_log_probs" instead.
        weights: "given" by the user; of the policy itself "averaged", "live" or those of the "start".
        rate: share of the present weights that every update takes into averaged ones.
        hint_tokens: of the longest hint that the teacher reads; 0 without hints.
    """

    divergence: str | None = None
    weights: str = "given"
    rate: float = 0.0
    hint_tokens: int = 0

    @property
    def kl_coef(self) -> float:
        """The weight of the divergence in the loss; `Anchor` reads it, as it does with the settings of an agent."""
        return 0.0 if self.divergence is None else 1.0

    kl_estimator, kl_in, kl_ratio = kl.EXACT, "loss", "none"

    def begun(self, agent: Any) -> Teaching:
        """Return the KL anchor of an agent that has its policy."""
        return Teaching(agent, self)


class Teaching(Anchor):
    """The KL anchor of an agent with a teacher, which is its reference and may be the policy's own mean.

    Args:
        agent: with a policy.
        lesson: the settings of the teacher.

    Raises:
        ValueError: for hints to a policy that does not read text.
    """

    is_teacher = True

    def __init__(self, agent: Any, lesson: Lesson) -> None:
        self.agent, self.lesson = agent, lesson
        if lesson.hint_tokens and not hasattr(agent.policy, "hinted"):
            kind = type(agent.policy).__name__
            raise ValueError(f"{agent.name} needs a policy that reads text, not a {kind}: take rloo")
        self.divergence, self.is_frozen = lesson.divergence or "kl", lesson.weights in ("given", "start")
        super().__init__(lesson)
        if lesson.weights == "live":
            self.reference = agent.policy

    @override
    def copy_of(self, policy: Any) -> Policy:
        if self.lesson.weights == "averaged" and getattr(policy, "adapter", None):
            copied: Policy = policy.on_the_same_base(True)  # with each weight, also of one that changes nothing yet
            return copied
        return super().copy_of(policy)

    @override
    def meet(self, env: VectorEnv, collector: Collector) -> None:
        """Read the user's teacher, if it was not, and have the verdicts' feedback collected for hints."""
        agent = self.agent
        if agent.teacher is not None and self.reference is None:
            self.reference = frozen_teacher(agent.teacher, agent.policy, env, agent.teacher_temperature)
        if self.lesson.hint_tokens:
            from ..language.hints import feedback_speller  # slow to import

            collector.spell = feedback_speller(env.metadata, self.lesson.hint_tokens)

    @override
    def hinted(self, rollout: Rollout) -> Rollout:
        most = self.lesson.hint_tokens
        return self.agent.policy.hinted(rollout, self.agent.env.metadata, most) if most else rollout

    @cached_property
    def mean(self) -> MasterWeights:
        """The averaged weights, 16-bit ones in float32."""
        assert self.reference is not None
        return MasterWeights(self.reference.parameters())

    @override
    @torch.no_grad()
    def follow(self) -> None:
        """Move averaged weights: θ' ← θ' + rate (θ - θ')."""
        if not self._averages or self.reference is None:
            return
        policy, trained = self.agent.policy, self.agent.policy_optimizer.weights
        release_weights(policy, self.reference)
        kept = dict(self.reference.named_parameters())
        present = {name: weight for name, weight in policy.named_parameters() if weight.requires_grad}
        both = zip(self.mean.of(kept[name] for name in present), trained.of(present.values()), strict=True)
        for mean, weight in both:
            local(mean).lerp_(local(weight), self.lesson.rate)
        self.mean.copy_down()

    @property
    def _averages(self) -> bool:
        return self.lesson.weights == "averaged" and self.reference is not None

    def state_dict(self) -> dict[str, Any]:
        """Return the float32 copies of a mean; the rest of the reference is saved as it is."""
        return {"mean": self.mean.state()} if self._averages else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from `state_dict`."""
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
        ValueError: with the allowed ones.
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
