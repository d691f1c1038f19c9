"""Optional packages of verifiers."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, extra: str, purpose: str) -> Any:
    """Return an optional module.

    Args:
        module: what to import.
        extra: the extra of this package that installs it.
        purpose: what needs it, such as "verifier 'math'".

    Raises:
        ValueError: if it is not installed, with the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"{purpose} needs {module}: pip install 'rlenv-lm[{extra}]' ({error})") from error
