"""The guard against other distributions that own the import names `agents` and `verifiers`."""

from __future__ import annotations

from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

_MARK = "__rlenv_package__ = True"


_REINSTALL = "pip install --force-reinstall --no-deps"


def check_neighbours(*names: str) -> None:
    """Check, without importing them, that the packages of these names are ours.

    Another distribution may come first on the path, have overwritten our files, or have taken them along when it was
    uninstalled.

    Raises:
        ImportError: naming the foreign file, the distribution that owns it, and the way out.
    """
    for name in names:
        spec = find_spec(name)
        origin = spec.origin if spec is not None else None
        if origin is None or _MARK not in Path(origin).read_text(encoding="utf-8", errors="replace"):
            raise ImportError(f"rlenv needs its own package {name!r}, but Python finds {_found(name, origin)}")


def _found(name: str, origin: str | None) -> str:
    """Return what was found instead, whose it is, and what to do."""
    if origin is None:
        return f"none; run: {_REINSTALL} rlenv"
    owners = sorted({owner for owner in packages_distributions().get(name, []) if owner != "rlenv"})
    if not owners:
        return f"{origin} (not an installed package); rename it, or run: {_REINSTALL} rlenv"
    return (
        f"{origin} (owner: {', '.join(owners)}); install rlenv into a virtual environment of its own, "
        f"or run: pip uninstall {' '.join(owners)}; {_REINSTALL} rlenv"
    )
