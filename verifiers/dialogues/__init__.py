"""Dialogues: how they are run, and the dialogues that any verifier can have, such as tools."""

from .running import begin, check_replays, replay, reply_to
from .world import opened

__all__ = ["begin", "check_replays", "opened", "replay", "reply_to"]
