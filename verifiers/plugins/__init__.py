"""The registry of verifiers by name; plugins, user code, optional packages, and checks of arguments."""
