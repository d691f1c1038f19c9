"""Policies, which choose actions: `base.py` defines the interface, `make.py` makes a policy from its name."""

from .base import Policy
from .choosing import choose, evaluate_choices
from .control import ControlPolicy
from .make import KINDS, NAMES, SavedPolicy, check_name, kind_of, make_policy, tokenizer_of
from .presets import PACKAGED
from .token_spaces import text_spaces

__all__ = [
    "KINDS",
    "NAMES",
    "PACKAGED",
    "ControlPolicy",
    "Policy",
    "SavedPolicy",
    "check_name",
    "choose",
    "evaluate_choices",
    "kind_of",
    "make_policy",
    "text_spaces",
    "tokenizer_of",
]
