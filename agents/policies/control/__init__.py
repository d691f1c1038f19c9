"""Policies of vectors and images, in which stable-baselines3's networks act."""
