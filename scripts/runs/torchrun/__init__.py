"""Runs of several processes, as torchrun starts them."""
