"""Verifiers pose problems and judge answers; `base.py` defines what a verifier is."""

# ruff: noqa: F401 (`__getattr__` answers for `__all__`)
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .base import Dialogue, Problem, Reply, Verdict, Verifier
from .function import FunctionVerifier
from .plugins.registry import list_verifiers, make_verifier, register_verifier
from .sandbox.pool import Isolated, isolate
from .weighted import Weighted

if TYPE_CHECKING:
    from . import builtin
    from .builtin import *  # noqa: F403

__rlenv_package__ = True

_OWN = [  # `__all__` has the built-in ones, too
    "Dialogue", "FunctionVerifier", "Isolated", "Problem", "Reply", "Verdict", "Verifier", "Weighted", "isolate",
    "list_verifiers", "make_verifier", "register_verifier",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import the built-in verifiers when one is asked for: a worker process starts three times as fast without."""
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    builtin = import_module(".builtin", __name__)
    if name == "__all__":
        return _OWN + builtin.__all__
    if name == "builtin":
        return builtin
    if name in builtin.__all__:
        return getattr(builtin, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
