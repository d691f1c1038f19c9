"""Verifiers pose problems and judge answers; `base.py` defines what a verifier is."""

# ruff: noqa: F401 (`__getattr__` answers for `__all__`)
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rlenv.verifiers.base import Dialogue as Dialogue  # `as` tells type checkers that a name is for others
from rlenv.verifiers.base import Execution as Execution
from rlenv.verifiers.base import Probes as Probes
from rlenv.verifiers.base import Problem as Problem
from rlenv.verifiers.base import Reply as Reply
from rlenv.verifiers.base import Turns as Turns
from rlenv.verifiers.base import Verdict as Verdict
from rlenv.verifiers.base import Verifier as Verifier
from rlenv.verifiers.function import FunctionVerifier as FunctionVerifier
from rlenv.verifiers.isolation import isolate as isolate
from rlenv.verifiers.plugins.registry import list_verifiers as list_verifiers
from rlenv.verifiers.plugins.registry import make_verifier as make_verifier
from rlenv.verifiers.plugins.registry import register_verifier as register_verifier

if TYPE_CHECKING:
    from rlenv.verifiers import builtin
    from rlenv.verifiers.builtin import *  # noqa: F403
    from rlenv.verifiers.sandbox.pool import Isolated as Isolated

if __name__ == "verifiers":  # the folder, from the root of a checkout: its names are those of rlenv.verifiers
    __path__ = []  # and its modules are not imported a second time

_OWN = [  # `__all__` has the built-in ones, too
    "Dialogue", "Execution", "FunctionVerifier", "Isolated", "Probes", "Problem", "Reply", "Turns", "Verdict",
    "Verifier", "isolate", "list_verifiers", "make_verifier", "register_verifier",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import the built-in verifiers when one is asked for: a worker process starts three times as fast without."""
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "Isolated":
        return import_module("rlenv.verifiers.sandbox.pool").Isolated
    builtin = import_module("rlenv.verifiers.builtin")
    if name == "__all__":
        return _OWN + builtin.__all__
    if name == "builtin":
        return builtin
    if name in builtin.__all__:
        return getattr(builtin, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
