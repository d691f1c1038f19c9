"""Verifiers: they pose the problems and judge the answers. One verifier a file; `base.py` says what one is."""

from .arith import Arith
from .base import Problem, Verdict, Verifier
from .choice import Choice
from .code import Code
from .countdown import Countdown
from .exact import Exact
from .format import Format
from .function import FunctionVerifier
from .isolation import Isolated, isolate
from .json_schema import JsonSchema
from .length import Length
from .math import Math
from .numeric import Numeric
from .reasoning_gym import ReasoningGym
from .regex import Regex
from .registry import list_verifiers, make_verifier, register_verifier
from .reward_model import RewardModel
from .weighted import Weighted

__rlenv_package__ = True

__all__ = [
    "Arith",
    "Choice",
    "Code",
    "Countdown",
    "Exact",
    "Format",
    "FunctionVerifier",
    "Isolated",
    "JsonSchema",
    "Length",
    "Math",
    "Numeric",
    "Problem",
    "ReasoningGym",
    "Regex",
    "RewardModel",
    "Verdict",
    "Verifier",
    "Weighted",
    "isolate",
    "list_verifiers",
    "make_verifier",
    "register_verifier",
]
