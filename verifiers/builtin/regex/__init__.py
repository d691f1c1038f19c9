"""regex: completions that match a pattern."""
