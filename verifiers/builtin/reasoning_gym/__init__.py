"""reasoning_gym: the procedural tasks of that library."""
