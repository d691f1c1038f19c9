"""Counts how often things are made or read."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest


def counted(patch: pytest.MonkeyPatch, *watched: tuple[str, Any, str]) -> Counter[str]:
    """Return the calls from now on, by name; `watched` are (name, object, attribute that is called)."""
    count: Counter[str] = Counter()

    def watch(name: str, place: Any, method: str) -> None:
        original = getattr(place, method)

        def call(*args: Any, **kwargs: Any) -> Any:
            count[name] += 1
            return original(*args, **kwargs)

        patch.setattr(place, method, call)

    for each in watched:
        watch(*each)
    return count
