"""Statements of a completion, and which of them states the result."""
