"""The smaller commands, one per file."""
