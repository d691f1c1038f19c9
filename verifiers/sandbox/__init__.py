"""Verifiers run apart, in worker processes, and a sandbox for programs that a model wrote."""
