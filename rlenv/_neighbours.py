"""Checks that the packages `rlenv`, `agents` and `verifiers` are ours and not another distribution's.

The command runs this file by its path: it imports nothing of ours.
"""

from __future__ import annotations

from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

_OURS = "rlenv-lm"  # the distribution; "rlenv" is somebody else's on PyPI
_MARK = "__rlenv_package__ = True"
_REINSTALL = f"pip install --force-reinstall --no-deps {_OURS}"


def check_neighbours(*names: str) -> None:
    """Check, without importing them, that the packages with these names are ours.

    Another distribution may come first on the path, may have overwritten our files, or may have removed them when it
    was uninstalled.

    Raises:
        ImportError: names the foreign file, the distribution that owns it, and the command that helps.
    """
    for name in names:
        spec = find_spec(name)
        origin = spec.origin if spec is not None else None
        if origin is None or _MARK not in Path(origin).read_text(encoding="utf-8", errors="replace"):
            raise ImportError(f"rlenv needs its own package {name!r}, but Python finds {_found(name, origin)}")


def _found(name: str, origin: str | None) -> str:
    """Return the file found instead, its owner, and the advice."""
    if origin is None:
        return f"none; run: {_REINSTALL}"
    owners = sorted({owner for owner in packages_distributions().get(name, []) if owner != _OURS})
    if not owners:
        return f"{origin} (not an installed package); rename it, or run: {_REINSTALL}"
    return (
        f"{origin} (owner: {', '.join(owners)}); install {_OURS} into a separate virtual environment, "
        f"or run: pip uninstall {' '.join(owners)}; {_REINSTALL}"
    )
