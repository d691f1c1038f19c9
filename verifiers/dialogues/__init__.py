"""Dialogues: how they are run, and those that every verifier can have, such as tools."""

from .running import InWorkers, begin, check_replays, replay, reply_to, verdict_without_budget

__all__ = ["InWorkers", "begin", "check_replays", "replay", "reply_to", "verdict_without_budget"]
