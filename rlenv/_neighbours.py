"""The guard against other distributions that own the import names `agents` and `verifiers`."""

from __future__ import annotations

from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

_MARK = "__rlenv_package__ = True"


def check_neighbours(*names: str) -> None:
    """Check, without importing them, that the packages of these names are ours.

    Raises:
        ImportError: naming the foreign file and the distribution that owns it.
    """
    for name in names:
        spec = find_spec(name)
        origin = spec.origin if spec is not None else None
        if origin is not None and _MARK in Path(origin).read_text(encoding="utf-8", errors="replace"):
            continue
        owners = ", ".join(sorted(set(packages_distributions().get(name, [])))) or "an unknown owner"
        raise ImportError(
            f"rlenv needs its own package {name!r}, but Python finds {origin or 'none'} (owner: {owners}); "
            "install rlenv into a clean virtual environment"
        )
