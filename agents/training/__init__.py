"""The training loop of every agent, and its parts."""
