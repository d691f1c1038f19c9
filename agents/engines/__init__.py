"""Engines that write turns in place of the policy's decoder, and what an agent needs of them."""
