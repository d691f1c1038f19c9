"""Verifiers run apart: worker processes below a supervisor, and a sandbox for programs that a model wrote."""
