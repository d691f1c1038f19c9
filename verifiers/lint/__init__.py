"""Checks verifiers: right answers are accepted, attacks are not, verdicts are reproducible and fast."""

from .report import Report, lint

__all__ = ["Report", "lint"]
