"""The registry of verifiers by name; plugins, user code, and optional packages."""
