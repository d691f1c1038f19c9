"""Verifiers apart from the run: worker processes, and a sandbox for programs."""
