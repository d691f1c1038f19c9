"""Verifiers: they pose the problems and judge the answers. One verifier a file; `base.py` says what one is."""

from .arith import Arith
from .base import Problem, Verdict, Verifier
from .code import Code
from .function import FunctionVerifier
from .registry import list_verifiers, make_verifier, register_verifier

__rlenv_package__ = True

__all__ = [
    "Arith",
    "Code",
    "FunctionVerifier",
    "Problem",
    "Verdict",
    "Verifier",
    "list_verifiers",
    "make_verifier",
    "register_verifier",
]
