"""Verifiers pose problems and judge answers; `base.py` defines what a verifier is."""

from . import builtin
from .base import Problem, Verdict, Verifier
from .builtin import *  # noqa: F403
from .function import FunctionVerifier
from .isolation.workers.pool import Isolated, isolate
from .plugins.registry import list_verifiers, make_verifier, register_verifier
from .weighted import Weighted

__rlenv_package__ = True

__all__ = [
    "FunctionVerifier", "Isolated", "Problem", "Verdict", "Verifier", "Weighted", "isolate", "list_verifiers",
    "make_verifier", "register_verifier",
]  # fmt: skip
__all__ += builtin.__all__
