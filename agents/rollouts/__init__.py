"""From environments to episodes: makes environments, steps them, and records their episodes."""
