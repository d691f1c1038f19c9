"""Verifiers by name, and what comes from outside: plugins, user code, optional packages, arguments."""
