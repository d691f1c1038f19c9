"""Acting, one token at a time: the key-value cache and each decode step."""
