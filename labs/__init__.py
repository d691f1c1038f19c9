"""The labs: experiments that show why an algorithm is as it is. A new one: a file, a line here, and docs/labs.md."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from rlenv._checks import check_choice

from .base import Finding

LABS = {
    "snr": "averaging K rollouts turns noise into direction",
    "baselines": "what a baseline takes from the variance, and where it hurts",
    "bandit": "which way one sample pushes, with and without a baseline",
    "kl": "an anchor keeps a policy off a verifier's loophole",
    "credit": "one decisive token among many: who gets the credit",
    "length-bias": "dividing by an answer's length teaches wrong answers to be long",
    "trust-region": "what holds a policy when a step is too large",
    "pass-at-k": "what RLOO, GRPO, MaxRL and PKPO optimize: pass@1 rises, pass@8 falls",
}


def find_lab(name: str) -> ModuleType:
    """Return the module of a lab; it has a function `run(seed) -> Finding`.

    Raises:
        ValueError: for an unknown name, with the closest match.
    """
    return import_module(f".{check_choice('lab', name, LABS).replace('-', '_')}", __name__)


__all__ = ["LABS", "Finding", "find_lab"]
