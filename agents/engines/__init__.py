"""Engines that write turns in place of our own decoder, and what an agent needs of them."""
