"""Verifiers as an OpenEnv server."""
