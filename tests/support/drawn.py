"""How many examples a property test draws, in each of the two profiles of tests/conftest.py."""

from typing import Any

from hypothesis import settings

FEW, MANY = 100, 500  # examples of a test that does not say how many


def drawn(examples: int, **more: Any) -> settings:
    """Return settings of hypothesis with so many examples in the fast suite, and more of them at random."""
    return settings(max_examples=examples * settings().max_examples // FEW, **more)
