"""The registry of verifiers by name; plugins, and user code."""
