"""Combinations of parameters, of which the fast tests take a few and the slow ones the rest."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import Any

import pytest


def diagonal(names: str, *axes: Collection[Any]) -> pytest.MarkDecorator:
    """Parametrize a test with every combination, fast along the diagonal, where every value occurs, and slow elsewhere.

    Args:
        names: those of the parameters, as `pytest.mark.parametrize` takes them.
        axes: the values of each parameter, with their ids if it is a mapping.
    """
    named = [
        list(axis.items())
        if isinstance(axis, Mapping)
        else [(getattr(value, "__name__", str(value)), value) for value in axis]
        for axis in axes
    ]
    longest = max(map(len, named))
    fast = {tuple(i % len(axis) for axis in named) for i in range(longest)}
    return pytest.mark.parametrize(
        names,
        [
            pytest.param(
                *(axis[i][1] for axis, i in zip(named, chosen, strict=True)),
                marks=[] if chosen in fast else [pytest.mark.slow],
                id="-".join(axis[i][0] for axis, i in zip(named, chosen, strict=True)),
            )
            for chosen in itertools.product(*(range(len(axis)) for axis in named))
        ],
    )
