"""The loop that every agent shares, and what it is made of."""
