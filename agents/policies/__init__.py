"""Policies, which choose actions: `base.py` defines what one is; what language models need is imported with them."""

from typing import TYPE_CHECKING, Any

from .base import Policy
from .choosing import choose, evaluate_choices
from .control.policy import ControlPolicy
from .language.models.presets import PACKAGED
from .language.spaces import text_spaces
from .make import KINDS, NAMES, SavedPolicy, check_name, kind_of, make_policy, tokenizer_of

if TYPE_CHECKING:
    from .language.models.loading import find_config
    from .language.nucleus import SampledPolicy
    from .language.policy import LanguageModelPolicy
else:
    from pkgutil import resolve_name

    _PLACES = {
        "LanguageModelPolicy": "policy",
        "SampledPolicy": "nucleus",
        "find_config": "models.loading",
    }

    def __getattr__(name: str) -> Any:
        """Import what language models need when it is asked for: transformers takes longer than all the rest."""
        if name in _PLACES:
            return resolve_name(f"{__name__}.language.{_PLACES[name]}:{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """Return the names that completion offers, also those that are imported when asked for."""
        return sorted({*globals(), *__all__})


__all__ = [
    "KINDS",
    "NAMES",
    "PACKAGED",
    "ControlPolicy",
    "LanguageModelPolicy",
    "Policy",
    "SampledPolicy",
    "SavedPolicy",
    "check_name",
    "choose",
    "evaluate_choices",
    "find_config",
    "kind_of",
    "make_policy",
    "text_spaces",
    "tokenizer_of",
]
