"""Environments of every kind as vector environments, and what is saved of them."""
