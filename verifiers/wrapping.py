"""Verifiers that judge problems which another one poses."""

from __future__ import annotations

from typing import Any

from .base import Poser, Verifier


class Held:
    """An attribute or a method of a verifier that is that of another one, which it holds; instances may have their own.

    Args:
        holder: the attribute in which it holds the other one.
    """

    def __init__(self, holder: str) -> None:
        self.holder, self.name = holder, ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        return getattr(Verifier if instance is None else getattr(instance, self.holder), self.name)


def held(holder: str = "poser") -> Any:
    """Return a `Held`, which a type checker takes for anything."""
    return Held(holder)


class WithPoser(Verifier):
    """A verifier that judges problems which another one poses.

    Attributes:
        poser: poses the problems, and knows right answers; by default one that makes none.
    """

    poser: Poser = Poser()
    alphabet: str = held()
    prompt_length: int | None = held()
    answer_length: int | None = held()
    levels: int = held()
    sample = held()
    sample_at = held()
    examples = held()
    demonstration = held()
    extract = held()
    split_key = held()


def makes_problems(poser: Poser) -> bool:
    """Tell whether problems can be sampled; otherwise they have to be listed."""
    kind = type(poser)
    own = kind.sample is not Poser.sample or kind.sample_at is not Poser.sample_at
    return own or (isinstance(poser, WithPoser) and makes_problems(poser.poser))
