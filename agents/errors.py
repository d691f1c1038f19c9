"""Errors that end a run, or that callers tell apart."""

from __future__ import annotations


class VerifierError(RuntimeError):
    """The verifier failed on too many episodes; the message says how many and why."""


class DivergedError(RuntimeError):
    """Training cannot go on: weights or updates are not finite, or two policies that should be one differ."""


class EngineError(RuntimeError):
    """The engine does not answer, or does not write with the policy's weights; the message says what to do."""


class UserCodeError(ValueError):
    """A class of the user's does not keep to its interface, or raised an exception, which is then the cause."""


class UnknownModelError(ValueError):
    """A name that stands for no model: neither a preset, nor a folder or id from which one can be read."""
