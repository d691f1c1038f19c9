"""exact: the reference answer, word for word."""
