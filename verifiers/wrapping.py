"""Verifiers that judge problems which another one poses."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from .base import Poser, Verifier

T = TypeVar("T")


class Held:
    """An attribute or a method that a verifier takes from its poser, unless the instance sets it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        return getattr(Verifier if instance is None else instance.poser, self.name)


def held(of: T) -> T:
    """Return a `Held`, typed as the attribute or method `of` of the poser's class."""
    return cast(T, Held())


class WithPoser(Verifier):
    """A verifier that judges problems which another one poses.

    Attributes:
        poser: poses the problems, and knows right answers; by default one that makes none.
    """

    poser: Poser = Poser()
    alphabet = held(Poser.alphabet)
    prompt_length = held(Poser.prompt_length)
    answer_length = held(Poser.answer_length)
    levels = held(Poser.levels)
    sample = held(Poser.sample)
    sample_at = held(Poser.sample_at)
    examples = held(Poser.examples)
    demonstration = held(Poser.demonstration)
    demonstration_turns = held(Poser.demonstration_turns)
    extract = held(Poser.extract)
    split_key = held(Poser.split_key)


def makes_problems(poser: Poser) -> bool:
    """Tell whether problems can be sampled; otherwise they have to be listed."""
    kind = type(poser)
    own = kind.sample is not Poser.sample or kind.sample_at is not Poser.sample_at
    return own or (isinstance(poser, WithPoser) and makes_problems(poser.poser))
