"""From the name, folder or object that a user passes to the policy it stands for."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium import spaces
from transformers import PreTrainedModel

from ..core.files import reading
from .base import Policy
from .control.policy import CLASSES, ControlPolicy
from .language.models.loading import find_config, is_text
from .language.models.presets import PRESETS
from .language.models.vocabulary import tokenizer_source
from .language.policy import LanguageModelPolicy

KINDS: dict[str, type[Policy]] = {cls.kind: cls for cls in (ControlPolicy, LanguageModelPolicy)}
NAMES = ("auto", *CLASSES, *PRESETS)


def check_name(spec: Any) -> None:
    """Refuse a misspelled policy name before it is looked up as a model id.

    Raises:
        ValueError: if `spec` is close to one of `NAMES` but neither one of them nor a folder.
    """
    if isinstance(spec, str) and spec not in NAMES and not Path(spec).is_dir():
        close = difflib.get_close_matches(spec, NAMES, n=1, cutoff=0.7)
        if close:
            raise ValueError(f"unknown model {spec!r}; did you mean {close[0]!r}?")


def tokenizer_of(spec: Any) -> str | None:
    """Return the folder or id of the tokenizer that a policy brings with its model; None if it brings none.

    Args:
        spec: as for `make_policy`. A `SavedPolicy` brings none: its environment is saved beside it.

    Raises:
        ValueError: for a model that does not exist or is not supported.
    """
    if isinstance(spec, LanguageModelPolicy):
        spec = spec.model
    if isinstance(spec, (str, Path)) and str(spec) not in NAMES:
        check_name(spec)
        find_config(spec)
    elif not isinstance(spec, PreTrainedModel):
        return None
    return tokenizer_source(spec)


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
    if spec == "auto":
        mlp = "MultiInputPolicy" if isinstance(observation_space, spaces.Dict) else "MlpPolicy"
        spec = "tiny" if is_text(observation_space, action_space) else mlp
    check_name(spec)
    try:
        if isinstance(spec, str) and spec in CLASSES:
            return ControlPolicy(observation_space, action_space, spec, **kwargs)
        if "critic" in kwargs and not needs_critic:
            raise ValueError(f"policy argument critic={kwargs['critic']!r}: this agent uses no critic; omit it")
        critic = kwargs.pop("critic", "head") if needs_critic else None
        return LanguageModelPolicy(observation_space, action_space, spec, critic=critic, **kwargs)
    except TypeError as error:
        name = repr(spec) if isinstance(spec, (str, Path)) else type(spec).__name__  # a model's repr has many lines
        raise ValueError(f"policy {name}: {error}") from error
