"""Engines that write turns in place of the policy's decoder, and the agent's side of them."""
