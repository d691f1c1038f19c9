"""A run: its folder, log, samples and checkpoints."""
