"""Checkpoints: folders on disk that an agent is saved to and loaded from."""
