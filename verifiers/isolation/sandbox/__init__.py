"""Programs that a model wrote, run without rights, network or files."""
