"""Policies, which choose actions: `base.py` defines what one is."""

from .base import Policy
from .control.policy import ControlPolicy
from .language.models.loading import find_config, text_spaces
from .language.nucleus import SampledPolicy
from .language.policy import LanguageModelPolicy
from .make import KINDS, NAMES, SavedPolicy, check_name, make_policy, tokenizer_of

__all__ = [
    "KINDS",
    "NAMES",
    "ControlPolicy",
    "LanguageModelPolicy",
    "Policy",
    "SampledPolicy",
    "SavedPolicy",
    "check_name",
    "find_config",
    "make_policy",
    "text_spaces",
    "tokenizer_of",
]
