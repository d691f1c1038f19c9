"""From the name, folder or object that a user passes to the policy it stands for."""

from __future__ import annotations

import difflib
from collections import UserDict
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from gymnasium import spaces

from ..errors import reading
from .base import Policy
from .control import CLASSES, ControlPolicy
from .presets import PACKAGED, PRESETS
from .token_spaces import is_text

LANGUAGE = "language-model"
NAMES = ("auto", *CLASSES, *PRESETS)


class _Kinds(UserDict[str, Any]):
    """Classes of policies by `Policy.kind`; one that is given as "module:Class" is imported when it is asked for."""

    def __getitem__(self, kind: str) -> Any:
        found = super().__getitem__(kind)
        return resolve_name(found) if isinstance(found, str) else found


KINDS = _Kinds({ControlPolicy.kind: ControlPolicy, LANGUAGE: "rlenv.agents.language.policy:LanguageModelPolicy"})


def check_name(spec: Any) -> None:
    """Refuse a misspelled policy name before it is looked up as a model id.

    Raises:
        ValueError: if `spec` is close to one of `NAMES` but neither one of them nor a file, folder or id of an owner.
    """
    if isinstance(spec, str) and spec not in (*NAMES, *PACKAGED) and "/" not in spec and not Path(spec).exists():
        close = difflib.get_close_matches(spec, (*NAMES, *PACKAGED), n=1, cutoff=0.7)
        if close:
            raise ValueError(f"unknown model {spec!r}; did you mean {close[0]!r}?")


def tokenizer_of(spec: Any) -> str | None:
    """Return the folder or id of the tokenizer that a policy brings with its model; None if it brings none.

    Args:
        spec: as for `make_policy`. A `SavedPolicy` brings none: its environment is saved beside it.

    Raises:
        ValueError: for a model that does not exist or is not supported.
    """
    spec = getattr(spec, "model", None) if isinstance(spec, Policy) else spec
    if spec is None or isinstance(spec, SavedPolicy) or (isinstance(spec, (str, Path)) and str(spec) in NAMES):
        return None
    check_name(spec)
    vocabulary = import_module("rlenv.agents.language.vocabulary")  # slow, and not needed for control
    found: str | None = vocabulary.brought_by(spec)
    return found


def kind_of(spec: Any, for_text: bool) -> str:
    """Return `Policy.kind` of the policy that `spec` stands for, before it is made.

    Args:
        spec: as for `make_policy`.
        for_text: whether the environment is one of text, which decides what "auto" is.

    Raises:
        ValueError: for a misspelled name.
    """
    if isinstance(spec, (Policy, SavedPolicy)):
        return spec.kind
    check_name(spec)
    is_control = isinstance(spec, str) and (spec in CLASSES or (spec == "auto" and not for_text))
    return ControlPolicy.kind if is_control else LANGUAGE


@dataclass(frozen=True)
class SavedPolicy:
    """A policy in a checkpoint, which can be loaded once the spaces are known.

    Args:
        kind: `Policy.kind` of its class.
        folder: what `Policy.save` was given.
    """

    kind: str
    folder: Path

    def load(self, observation_space: spaces.Space, action_space: spaces.Space) -> Policy:
        """Load the policy for the spaces of one environment."""
        with reading(self.folder):
            return KINDS[self.kind].load(self.folder, observation_space, action_space)


def make_policy(
    spec: Any, observation_space: spaces.Space, action_space: spaces.Space, needs_critic: bool = False, /, **kwargs: Any
) -> Policy:
    """Return the policy that `spec` stands for.

    Args:
        spec: "auto" (chosen by the spaces), "MlpPolicy", "CnnPolicy", "MultiInputPolicy", a language model (preset,
            folder, model id or object), or a Policy.
        observation_space: of one environment.
        action_space: of one environment.
        needs_critic: whether the agent uses a value function.
        kwargs: for the policy's constructor. If the agent needs a critic, `critic` of a language model is "head" by
            default.

    Raises:
        ValueError: for an unknown name, with the closest match, or arguments that the policy does not accept.
    """
    if isinstance(spec, (Policy, SavedPolicy)):
        if kwargs:
            raise ValueError(f"policy arguments {sorted(kwargs)} given together with a finished policy; omit them")
        return spec if isinstance(spec, Policy) else spec.load(observation_space, action_space)
    if isinstance(spec, type):
        raise ValueError(f"policy {spec.__name__} is a class; pass an instance, made for the spaces of the environment")
    kind = kind_of(spec, is_text(observation_space, action_space))
    if isinstance(spec, str) and spec == "auto":
        control = "MultiInputPolicy" if isinstance(observation_space, spaces.Dict) else "MlpPolicy"
        spec = control if kind == ControlPolicy.kind else "tiny"
    if kind == LANGUAGE:
        if "critic" in kwargs and not needs_critic:
            raise ValueError(f"policy argument critic={kwargs['critic']!r}: this agent uses no critic; omit it")
        kwargs["critic"] = kwargs.get("critic", "head") if needs_critic else None
    try:
        made: Policy = KINDS[kind](observation_space, action_space, spec, **kwargs)
    except TypeError as error:
        name = repr(spec) if isinstance(spec, (str, Path)) else type(spec).__name__  # a model's repr has many lines
        given = ", ".join(f"{argument}={value!r:.40}" for argument, value in kwargs.items())
        raise ValueError(f"policy {name}{' with ' * bool(given)}{given}: {error}") from error
    return made
