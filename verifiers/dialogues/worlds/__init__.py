"""Environments of other libraries: each a verifier whose problems are seeds and whose episodes are dialogues."""
