"""The training pass: every distinct context is read once."""
