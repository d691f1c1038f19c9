"""Causal language models as policies: acting token by token, training in one pass over whole episodes."""
