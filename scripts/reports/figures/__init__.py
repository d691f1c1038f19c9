"""Curves and the statistics under them."""
