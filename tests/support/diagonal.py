"""Combinations of parameters, of which the fast tests take a few and the slow ones the rest."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """Return a parameter that is left to the slow tests."""
    return pytest.param(*values, marks=pytest.mark.slow)


def diagonal(names: str, *axes: Collection[Any], rare: Collection[Any] = ()) -> pytest.MarkDecorator:
    """Parametrize a test with every combination, fast along the diagonal, where every value occurs, and slow elsewhere.

    Args:
        names: those of the parameters, as `pytest.mark.parametrize` takes them.
        axes: the values of each parameter, with their ids if it is a mapping.
        rare: ids of values that are slow in every combination.
    """
    named = [
        list(axis.items())
        if isinstance(axis, Mapping)
        else [(getattr(value, "__name__", str(value)), value) for value in axis]
        for axis in axes
    ]
    usual = [[pair for pair in axis if pair[0] not in rare] for axis in named]
    fast = {tuple(axis[i % len(axis)][0] for axis in usual) for i in range(max(map(len, usual)))}
    return pytest.mark.parametrize(
        names,
        [
            pytest.param(
                *(value for _, value in chosen),
                marks=[] if tuple(name for name, _ in chosen) in fast else [pytest.mark.slow],
                id="-".join(name for name, _ in chosen),
            )
            for chosen in itertools.product(*named)
        ],
    )
