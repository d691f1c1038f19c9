"""Attacks on a verifier and the rules it is held to: `lint` in `lint.py` is the door."""

from .lint import Report, lint

__all__ = ["Report", "lint"]
