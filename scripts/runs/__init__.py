"""A run folder and all that is in it: written, read, watched."""
